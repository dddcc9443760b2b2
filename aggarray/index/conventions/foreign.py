"""What do readers of aggregation files that other programs wrote have in common?

A convention is one module of this folder with a `CONVENTION` object. It recognises the structure of a file and reads it
into a `ForeignArrays`: the structure as if the aggregation variables were ordinary ones, and the matrix of fragments of each.
No fragment is opened: what an index says of it is a declared template, which `settle` replaces at the first read.
"""

import functools
import importlib
import os
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np

from aggarray.arrays import MasterArray
from aggarray.cf.encoding import Encoding, encoding
from aggarray.cf.units import normal_calendar
from aggarray.errors import AggarrayError, AggregationError, IndexFileError
from aggarray.formats.base import Structure, Variable, basename, unique_dimensions, words
from aggarray.formats.templates import text_attribute
from aggarray.index.uris import NOWHERE, Files, PathMap
from aggarray.partition.grid import MAX_CELLS
from aggarray.partition.matrix import Matrix, Step, Template
from aggarray.partition.tiling import relabel
from aggarray.storage.remote import is_remote, parent

Values = Callable[[str], np.ndarray]

#: Texts longer than this, and numbers of dimensions beyond it, are no honest index.
MAX_SHOWN, MAX_DIMENSIONS = 80, 64


@dataclass(frozen=True, slots=True, eq=False)
class ForeignArrays:
    """An aggregation file as read: ``matrices`` has the fragments of each aggregation variable of ``structure`` by path."""

    structure: Structure
    matrices: Mapping[str, Matrix]


@runtime_checkable
class Convention(Protocol):
    """A convention for aggregation files: one object per module of this folder."""

    name: str

    def recognises(self, structure: Structure) -> bool:
        """Tell whether a file is written in this convention."""

    def read(self, structure: Structure, values: Values, moves: PathMap = NOWHERE) -> ForeignArrays:
        """Read a file; IndexFileError names the variable and the value at fault.

        ``values(name)``: one variable of it, whole and as stored; ``moves``: prefixes of file names that are replaced
        before they are resolved against the file's own folder.
        """


@functools.cache
def conventions() -> tuple[Convention, ...]:
    """Return every convention there is a module for, in order of module name.

    >>> [c.name for c in conventions()]
    ['CF-1.13', 'CFA-0.4', 'CFA-0.6.2']
    """
    folder, package = os.path.dirname(os.path.abspath(__file__)), __name__.rpartition(".")[0]
    names = sorted(info.name for info in pkgutil.iter_modules([folder]))
    found = (getattr(importlib.import_module(f"{package}.{name}"), "CONVENTION", None) for name in names)
    return tuple(c for c in found if isinstance(c, Convention))


def convention_of(structure: Structure) -> Convention | None:
    """Return the convention of an aggregation file, None for a plain data file."""
    return next((c for c in conventions() if c.recognises(structure)), None)


def array_of_matrix(array: MasterArray, matrix: Matrix) -> MasterArray:
    """Return an array made of a variable of `ForeignArrays.structure`, with the fragments of that variable as its partitions.

    Fragments run as their master does, whichever way that is. AggregationError where the shapes differ.
    """
    if (array.dimensions, array.shape) != (matrix.dimensions, matrix.shape):
        ours, theirs = (dict(zip(a.dimensions, a.shape, strict=True)) for a in (array, matrix))
        raise AggregationError(f"array {array.name!r} has dimensions {ours}, its fragments make up {theirs}")
    for axis, forward in enumerate(array.directions):
        if forward != matrix.directions[axis]:
            matrix = relabel(matrix, axis)
    own, references = array._matrix.references.templates[0].last_step, matrix.references
    if own != array._step:  # bounds in units of their own, which follow their coordinate
        steps = [replace(t, steps=(*t.steps, own)) for t in references.templates]
        matrix = replace(matrix, references=references.with_templates(steps))
    return replace(array, _matrix=matrix, _known=None)


class ForeignFile:
    """An aggregation file that is being read: names are looked up as CF section 2.7 says, sizes checked before values."""

    def __init__(self, structure: Structure, values: Values, moves: PathMap) -> None:
        self.structure, self._values = structure, values
        uri = structure.uri
        self._moves, self._folder = moves, parent(uri) if is_remote(uri) else os.path.dirname(uri)
        self.variables = {v.name: v for v in structure.variables}
        self._stored: dict[str, np.ndarray] = {}

    def fault(self, variable: Variable, text: str) -> IndexFileError:
        """Return the error for something wrong with an aggregation variable."""
        return IndexFileError(f"{self.structure.uri}, variable {variable.name!r}: {text}")

    def resolve(self, variable: Variable, written: str) -> str:
        """Return the path or URL that a file name stands for."""
        return self.resolve_all(variable, [written])[0]

    def resolve_all(self, variable: Variable, written: Sequence[str]) -> list[str]:
        """Return the paths or URLs that file names stand for."""
        bad = next((w for w in written if "\x00" in w), None) if "\x00" in "".join(written) else None
        if bad is not None:
            raise self.fault(variable, f"file name {shown(bad)} has a NUL in it: correct it in the index")
        try:
            return list(Files(written, self._folder, self._moves))
        except AggarrayError as error:
            raise self.fault(variable, f"a file name: {error}") from error

    def find(self, name: str, near: Variable) -> Variable | None:
        """Return the variable of a path, or of a name in the group of ``near`` or the nearest above it."""
        found: Variable | None = self._nearest(name, near, self.variables)
        return found

    def _nearest(self, name: str, near: Variable, known: Mapping[str, Any]) -> Any:
        if name.startswith("/"):
            return known.get(name[1:])
        group = near.name
        while group:
            group = group.rpartition("/")[0]
            path = f"{group}/{name}" if group else name
            if path in known:
                return known[path]
        return None

    def dimension(self, name: str, near: Variable) -> int | None:
        """Return the size of a dimension as the file has it; None where the format has none and no variable shows it.

        IndexFileError for one that the file does not have.
        """
        sizes = self.structure.sizes
        if sizes is None:
            sizes = {}
            for v in self.structure.variables:
                group = v.name.rpartition("/")[0]
                sizes.update({f"{group}/{d}" if group else d: n for d, n in zip(v.dimensions, v.shape, strict=True)})
            found = self._nearest(name, near, sizes)
            return None if found is None else int(found)
        found = self._nearest(name, near, sizes)
        if found is None:
            known = ", ".join(list(sizes)[:20]) or "none"
            raise self.fault(near, f"no dimension {shown(name)} in the file: there is {known}; correct the index")
        return int(found)

    def dimensions(self, variable: Variable, attribute: str) -> tuple[list[str], tuple[str, ...]]:
        """Return the names that an attribute lists, as written, and as dimensions of the array."""
        written = variable.attrs.get(attribute)
        if not isinstance(written, str):
            raise self.fault(variable, f"{attribute} is {shown(written)}, not text: list the dimensions, '' for none")
        names = words(written)
        if len(names) > MAX_DIMENSIONS or len(set(names)) < len(names):
            raise self.fault(variable, f"{attribute} {shown(written)}: name each dimension once, {MAX_DIMENSIONS} at most")
        return names, unique_dimensions([basename(n) for n in names])

    def stored(self, variable: Variable, term: Variable) -> np.ndarray:
        """Return the stored values of a variable that serves an aggregation variable; each is read once.

        IndexFileError, before memory is taken, for one of more elements than a matrix may have partitions.
        """
        if term.name not in self._stored:
            if prod(term.shape) > MAX_CELLS:
                raise self.fault(variable, f"{term.name!r} has {prod(term.shape)} elements, more than {MAX_CELLS}")
            found = np.asarray(self._values(term.name))
            if found.shape != term.shape:
                raise self.fault(variable, f"{term.name!r} was read as shape {found.shape}, not {term.shape}")
            self._stored[term.name] = found
        return self._stored[term.name]

    def read(self, variable: Variable, term: Variable) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the values of a variable that serves an aggregation variable, and which of them are missing."""
        return self.encoding(variable, term).decode(self.stored(variable, term))

    def encoding(self, variable: Variable, term: Variable) -> Encoding:
        """Return how the values of a variable that serves an aggregation variable are encoded."""
        try:
            return encoding(term.dtype, term.attrs, term.name)
        except AggarrayError as error:
            raise self.fault(variable, str(error)) from error

    def master(self, variable: Variable) -> tuple[Encoding, tuple[Step, ...]]:
        """Return the encoding of an aggregation variable, and the step that decodes its assembled values, if any is needed.

        Fragments are unpacked, converted to its units and cast to its stored dtype before that.
        """
        decoding = self.encoding(variable, variable)
        return decoding, () if decoding.trivial else (Step(*units_of(variable), decoding.stored, decoding),)

    def check_own(self, variable: Variable, names: list[str], marks: tuple[str, ...]) -> None:
        """Raise IndexFileError unless variables of the index itself exist and are no aggregations; ``marks`` tell these."""
        for name in names:
            found = self.variables.get(name)
            if found is None:
                raise self.fault(variable, f"a fragment is variable {shown(name)} of the index itself, which has none such")
            if any(mark in found.attrs for mark in marks):
                text = "which is an aggregation variable: a fragment must hold values"
                raise self.fault(variable, f"a fragment is variable {shown(name)} of the index itself, {text}")

    def rewritten(self, made: Mapping[str, Variable], dropped: set[str]) -> Structure:
        """Return the structure with variables in place of the aggregation variables, without those that only serve them."""
        kept = [made.get(v.name, v) for v in self.structure.variables if v.name not in dropped or v.name in made]
        names = {d for v in kept for d in v.dimensions}
        sizes = self.structure.sizes and {d: n for d, n in self.structure.sizes.items() if basename(d) in names}
        return replace(self.structure, variables=tuple(kept), sizes=sizes)


def units_of(variable: Variable) -> tuple[str | None, str | None]:
    """Return units and calendar of a variable."""
    units = text_attribute(variable.attrs.get("units"))
    return units, normal_calendar(units, text_attribute(variable.attrs.get("calendar")))


def unresolved_template(
    shape: tuple[int, ...], dimensions: tuple[str, ...], decoding: Encoding, steps: tuple[Step, ...]
) -> Template:
    """Return the template of a fragment that nobody has looked at: in the master's sense, dtype and, until then, units."""
    plain = Encoding(decoding.dtype, decoding.dtype, decoding.dtype)
    forward = (True,) * len(shape)
    return Template(shape, dimensions, forward, None, None, plain, "unknown", steps=steps, declared=True, names=dimensions)


def ordinary(variable: Variable, dimensions: tuple[str, ...], shape: tuple[int, ...], own: tuple[str, ...]) -> Variable:
    """Return an aggregation variable as an ordinary one, without the attributes that begin as ``own`` says."""
    attrs = {k: v for k, v in variable.attrs.items() if not k.startswith(own)}
    return replace(variable, dimensions=dimensions, shape=shape, attrs=attrs, values=None)


def shown(value: Any) -> str:
    """Return a value of a file as a message shows it: on one line, not too long.

    >>> shown("a" * 100)[-6:]
    'aaa...'
    """
    try:
        text = " ".join(repr(value[: 2 * MAX_SHOWN] if isinstance(value, str | list) else value).split())
    except RecursionError:
        return f"a {type(value).__name__} nested too deep"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
