"""Common base of the readers of other programs' aggregation files.

A convention is a module of this folder with a `CONVENTION` object; a module of its name and ``_write`` writes it. It recognises
the structure of a file and reads it into `ForeignArrays`: the structure with ordinary variables in place of the aggregation
variables, and their matrices of fragments. No fragment is opened: its template is declared by the index and verified on the
first read.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.cf.attributes import basename, text_attribute, words
from aggarray.cf.encoding import Encoding, encoding
from aggarray.cf.units import normal_calendar
from aggarray.dataclass import dataclass, replace
from aggarray.errors import AggarrayError, AggregationError, IndexFileError
from aggarray.formats.base import Structure, Variable, unique_dimensions
from aggarray.index.indexed_files import Files
from aggarray.index.uris import NOWHERE, PathMap
from aggarray.memory.texts import Texts
from aggarray.partition.matrix import MAX_CELLS, Matrix, Step, Template
from aggarray.partition.tiling import relabel
from aggarray.plugins import module_names
from aggarray.storage.urls import RELOCATE, is_remote, parent

_T = TypeVar("_T")
#: Returns the stored values of a variable, or its texts in C order.
Values = Callable[[str], np.ndarray | Texts]

#: Longest text in a message, and most dimensions of a variable.
MAX_SHOWN, MAX_DIMENSIONS = 80, 64


@dataclass(frozen=True, slots=True, eq=False)
class ForeignArrays:
    """Aggregation file as read; ``matrices``: fragments by variable path."""

    structure: Structure
    matrices: Mapping[str, Matrix]


@runtime_checkable
class Convention(Protocol):
    """Convention for aggregation files with one of the attributes ``marks``."""

    name: str
    marks: Sequence[str]

    def recognises(self, structure: Structure) -> bool:
        """Return whether a file uses this convention."""

    def read(self, structure: Structure, values: Values, path_map: PathMap = NOWHERE) -> ForeignArrays:
        """Return the arrays of a file.

        Raises IndexFileError with the variable and the invalid value.
        ``values(name)``: the stored values of a variable; ``path_map``: prefixes of file names to replace before they are
        resolved against the folder of the file.
        """


def conventions() -> Iterator[Convention]:
    """Yield the conventions by module name, each imported in its turn.

    >>> [c.name for c in conventions()]
    ['CF-1.13', 'CFA-0.4', 'CFA-0.6.2']
    """
    return filter(None, map(_convention, _modules()))


@functools.cache
def _modules() -> Sequence[str]:
    # Writers import much that no reader needs.
    modules = module_names([os.path.dirname(os.path.abspath(__file__))])
    return [module for module in modules if not module.endswith("_write")]


@functools.cache
def _convention(module: str) -> Convention | None:
    candidate = getattr(importlib.import_module(f"{__name__.rpartition('.')[0]}.{module}"), "CONVENTION", None)
    return candidate if isinstance(candidate, Convention) else None


def convention_of(structure: Structure) -> Convention | None:
    """Return the convention of an aggregation file, None for plain data."""
    return next((c for c in conventions() if c.recognises(structure)), None)


def array_of_matrix(array: MasterArray, matrix: Matrix) -> MasterArray:
    """Return an array of a `ForeignArrays` with fragments as partitions.

    Fragments run in the direction of their master. Raises AggregationError if the shapes differ.
    """
    if (array.dimensions, array.shape) != (matrix.dimensions, matrix.shape):
        ours, theirs = (dict(zip(a.dimensions, a.shape, strict=True)) for a in (array, matrix))
        raise AggregationError(f"dimensions {ours} differ from those of the fragments, {theirs}", variable=array.name)
    for axis, forward in enumerate(array.directions):
        if forward != matrix.directions[axis]:
            matrix = relabel(matrix, axis)
    step, references = array._matrix.references.templates[0].last_step, matrix.references
    if step != array._step:  # bounds in other units than their coordinate
        steps = [replace(t, steps=(*t.steps, step)) for t in references.templates]
        matrix = replace(matrix, references=references.with_templates(steps))
    return replace(array, _matrix=matrix, _known=None)


class ForeignFile:
    """An aggregation file that is being read.

    Names are resolved as in CF section 2.7; sizes are checked before values are read.
    """

    def __init__(self, structure: Structure, values: Values, path_map: PathMap) -> None:
        self.structure, self._values = structure, values
        uri = structure.uri
        self._path_map, self._folder = path_map, parent(uri)
        self.variables = {v.name: v for v in structure.variables}
        self._stored: dict[str, np.ndarray | Texts] = {}

    def fault(self, variable: Variable, what: str, hint: str | None = None) -> IndexFileError:
        """Return an error for an aggregation variable."""
        return IndexFileError(what, path=self.structure.uri, variable=variable.name, hint=hint or "correct the index")

    def resolve(self, variable: Variable, written: str) -> str:
        """Return the path or URL of a file name."""
        return self.resolve_all(variable, [written])[0]

    def resolve_all(self, variable: Variable, written: Sequence[str]) -> list[str]:
        """Return the paths or URLs of file names."""
        bad = next((w for w in written if "\x00" in w), None) if "\x00" in "".join(written) else None
        if bad is not None:
            raise self.fault(variable, f"file name {shown(bad)} contains a null byte", "correct the index")
        try:
            return list(Files(written, self._folder, self._path_map))
        except AggarrayError as error:
            name = "" if error.path is None else f" {shown(error.path)}"
            raise self.fault(variable, f"invalid file name{name}: {error.what}", error.hint) from error

    def resolve_texts(self, variable: Variable, written: Texts) -> tuple[Sequence[str], np.ndarray]:
        """Return the paths or URLs of file names, and which are the index itself.

        An empty name is the index. Names that are valid as they stand are resolved lazily.
        """
        own = self.structure.uri
        if self._path_map.pairs or is_remote(self._folder) or not written.lengths.all() or RELOCATE in os.environ:
            resolved = iter(self.resolve_all(variable, [w for w in written if w]))
            paths = tuple(next(resolved) if length else own for length in written.lengths.tolist())
            return paths, np.array([p == own for p in paths], bool)
        from aggarray.index.reference_search import rows_named

        # promise: foreign-index-names
        self.resolve_all(variable, _unsafe(written))
        files = Files(Texts(written.buffer, written.lengths, written.starts), self._folder, self._path_map)
        is_own = np.zeros(len(written), bool)
        for row in rows_named(written, basename(own)).tolist():
            is_own[row] = files[row] == own
        return files, is_own

    def find(self, name: str, near: Variable) -> Variable | None:
        """Return the variable of a path, or of a name in a group or its parents."""
        return self._nearest(name, near, self.variables)

    def _nearest(self, name: str, near: Variable, items: Mapping[str, _T]) -> _T | None:
        if name.startswith("/"):
            return items.get(name[1:])
        group = near.name
        while group:
            group = group.rpartition("/")[0]
            path = f"{group}/{name}" if group else name
            if path in items:
                return items[path]
        return None

    def dimension(self, name: str, near: Variable) -> int | None:
        """Return the size of a dimension, None in a format without dimensions.

        Raises IndexFileError for a dimension that the file does not have.
        """
        sizes = dict(self.structure.sizes or {})
        if self.structure.sizes is None:
            for v in self.structure.variables:
                group, slash, _ = v.name.rpartition("/")
                sizes.update({f"{group}{slash}{d}": n for d, n in zip(v.dimensions, v.shape, strict=True)})
        size = self._nearest(name, near, sizes)
        if size is None and self.structure.sizes is not None:
            names = ", ".join(list(sizes)[:20]) or "none"
            raise self.fault(near, f"no dimension {shown(name)} in the file, which has {names}", "correct the index")
        return None if size is None else int(size)

    def dimensions(self, variable: Variable, attribute: str) -> tuple[list[str], tuple[str, ...]]:
        """Return the names in an attribute, and the dimensions of the array."""
        written = variable.attrs.get(attribute)
        if not isinstance(written, str):
            raise self.fault(variable, f"{attribute} {shown(written)} is not text", "list the dimensions, '' for none")
        names = words(written)
        if len(names) > MAX_DIMENSIONS or len(set(names)) < len(names):
            hint = f"name each dimension once, {MAX_DIMENSIONS} at most"
            raise self.fault(variable, f"{attribute} {shown(written)} has repeated or too many dimensions", hint)
        return names, unique_dimensions([basename(n) for n in names])

    def stored(self, variable: Variable, term: Variable) -> np.ndarray:
        """Return the stored values of a term's variable, read once and bounded."""
        values = self._load(variable, term)
        return np.array(list(values), np.dtypes.StringDType()).reshape(term.shape) if isinstance(values, Texts) else values

    def texts(self, variable: Variable, term: Variable) -> tuple[Texts, np.ndarray]:
        """Return the texts of a term's variable in C order, and which exist."""
        values = self._load(variable, term)
        texts = values if isinstance(values, Texts) else Texts.of(values.ravel().tolist())
        exists = texts.lengths > 0
        for missing in self.encoding(variable, term).missing:
            exists &= ~texts.equals(missing)
        return texts, exists

    def _load(self, variable: Variable, term: Variable) -> np.ndarray | Texts:
        if term.name not in self._stored:
            if prod(term.shape) > MAX_CELLS:
                raise self.fault(variable, f"{term.name!r} has {prod(term.shape)} elements, more than {MAX_CELLS}")
            values = self._values(term.name)
            if not isinstance(values, Texts):
                values = np.asarray(values)
                if values.shape != term.shape:
                    raise self.fault(variable, f"{term.name!r} was read as shape {values.shape}, not {term.shape}")
            self._stored[term.name] = values
        return self._stored[term.name]

    def read(self, variable: Variable, term: Variable) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the values of the variable of a term, and their mask."""
        return self.encoding(variable, term).decode(self.stored(variable, term))

    def encoding(self, variable: Variable, term: Variable) -> Encoding:
        """Return the encoding of the variable of a term."""
        try:
            return encoding(term.dtype, term.attrs, term.name)
        except AggarrayError as error:
            raise self.fault(variable, f"variable {term.name!r}: {error.what}", error.hint) from error

    def master(self, variable: Variable) -> tuple[Encoding, tuple[Step, ...]]:
        """Return the encoding of an aggregation variable, and its decoding step.

        Before that step, fragments are unpacked, converted to its units and cast to its stored dtype. No step if it is trivial.
        """
        decoding = self.encoding(variable, variable)
        return decoding, () if decoding.trivial else (Step(*units_of(variable), decoding.stored, decoding),)

    def check_own(self, variable: Variable, names: list[str], marks: tuple[str, ...]) -> None:
        """Raise IndexFileError for absent or aggregated fragments in the index."""
        for name in names:
            fragment = self.variables.get(name)
            if fragment is None:
                raise self.fault(variable, f"a fragment is variable {shown(name)} of the index itself, which does not exist")
            if any(mark in fragment.attrs for mark in marks):
                what = f"a fragment is variable {shown(name)} of the index itself, which is an aggregation variable"
                raise self.fault(variable, what, "a fragment must hold values")

    def rewritten(self, made: Mapping[str, Variable], dropped: set[str]) -> Structure:
        """Return the structure with variables ``made`` and without ``dropped``."""
        kept = [made.get(v.name, v) for v in self.structure.variables if v.name not in dropped or v.name in made]
        names = {d for v in kept for d in v.dimensions}
        sizes = self.structure.sizes and {d: n for d, n in self.structure.sizes.items() if basename(d) in names}
        return replace(self.structure, variables=tuple(kept), sizes=sizes)


def _unsafe(references: Texts) -> list[str]:
    """Return the references that may be invalid, which are URLs or have NULs."""
    if references.is_plain():
        return []
    facts = references.fingerprints()
    unusual, urls = np.flatnonzero(facts.unusual), np.flatnonzero(facts.colons)
    unsafe = np.zeros(len(references), bool)
    unsafe[unusual] = references.take(unusual).contain("\0")
    unsafe[urls] |= facts.unusual[urls] | ~_plain_urls(references.take(urls))
    return list(references.take(np.flatnonzero(unsafe)))


def _plain_urls(references: Texts) -> np.ndarray:
    """Return which references are valid URLs, if all characters are printable."""
    remote = np.logical_or.reduce([references.start_with(f"{scheme}://") for scheme in ("https", "http", "s3", "gs")])
    return np.asarray(references.start_with("file:///") | (remote & ~references.contain("@")))


def units_of(variable: Variable) -> tuple[str | None, str | None]:
    """Return units and calendar of a variable."""
    units = text_attribute(variable.attrs.get("units"))
    return units, normal_calendar(units, text_attribute(variable.attrs.get("calendar")))


def unresolved_template(
    shape: tuple[int, ...], dimensions: tuple[str, ...], decoding: Encoding, steps: tuple[Step, ...]
) -> Template:
    """Return an unopened fragment's template: the master's, without units."""
    plain = Encoding(decoding.dtype, decoding.dtype, decoding.dtype)
    forward = (True,) * len(shape)
    return Template(shape, dimensions, forward, None, None, plain, "unknown", steps=steps, declared=True, names=dimensions)


def ordinary(variable: Variable, dimensions: tuple[str, ...], shape: tuple[int, ...], prefixes: tuple[str, ...]) -> Variable:
    """Return an ordinary variable without the attributes of ``prefixes``."""
    attrs = {k: v for k, v in variable.attrs.items() if not k.startswith(prefixes)}
    return replace(variable, dimensions=dimensions, shape=shape, attrs=attrs, values=None)


def shown(value: Any) -> str:
    """Return a value as text for a message: one line of limited length.

    >>> shown("a" * 100)[-6:]
    'aaa...'
    """
    try:
        text = " ".join(repr(value[: 2 * MAX_SHOWN] if isinstance(value, str | list) else value).split())
    except RecursionError:
        return f"a {type(value).__name__} nested too deeply"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
