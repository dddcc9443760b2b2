"""Resolution of declared and assumed templates to those of the files.

An index names sub-arrays whose files were not opened: their templates are `declared`. Before a read, the file is scanned and
the declared template is replaced by the real one: dimensions are matched to those of the index, sizes compared, and dtype,
packing, missing values and units taken from the file. Scan results are cached by file identity.

An `assumed` template predicts the complete file: the file is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np

from aggarray.dataclass import dataclass, replace
from aggarray.errors import AggarrayError, FormatError, IndexFileError, MissingFileError
from aggarray.formats import scan
from aggarray.formats.base import Structure
from aggarray.formats.partial_scan import Result
from aggarray.formats.templates import template_of
from aggarray.memory.selection import distinct
from aggarray.partition.matrix import Matrix, References, Step, Template
from aggarray.partition.plan import DimensionPlan
from aggarray.partition.signatures import FileSignature
from aggarray.scan.comparison import Mismatch, changed_since_opening, difference, own_number
from aggarray.scan.files import start_pool
from aggarray.scan.workers import FEW_FILES
from aggarray.storage.access import ANYWHERE, Access
from aggarray.storage.files import prefetch_states, stat_file
from aggarray.storage.lru_cache import LRUCache
from aggarray.storage.urls import is_remote

#: Number of cached file descriptions.
MAX_FILES = 16384
#: Largest number of sub-arrays resolved together.
_BATCH = 4096
#: Number of signatures whose comparison with a file is cached.
_MAX_COMPARED = 4

#: Prefix of the name of a variable that an index identifies by number.
NUMBER_MARK = "#"

#: Why an index cannot name an aggregation variable.
NESTED = "an aggregation variable itself: name the files that it is made of"

_AGGREGATION_MARKS = ("aggregated_data", "cfa_array", "nca_array")


_Comparison = tuple[FileSignature, Mismatch | None, int]


@dataclass(frozen=True, slots=True)
class _Description:
    """Variables of a file: the template of each, or why it cannot be used.

    ``numbered``: the names by number, if certain. ``compared``: the signatures that the file was compared with, how it
    differs, and the hash of what is read of it.
    """

    state: tuple[int, ...]
    variables: dict[str, Template | str]
    numbered: tuple[str, ...] | None
    compared: tuple[_Comparison, ...] = ()

    def knows(self, assumed: FileSignature | None) -> bool:
        """Return whether the file was compared with a signature; True without one."""
        return assumed is None or any(other is assumed or other == assumed for other, _, _ in self.compared)

    def mismatch(self, assumed: FileSignature | None, seen: int | None) -> Mismatch | None:
        """Describe how a file differs from a signature and its hash, if it does."""
        for other, mismatch, number in self.compared if assumed is not None else ():
            if other is assumed or other == assumed:
                is_changed = mismatch is None and seen not in (None, number)
                return changed_since_opening([*sorted(other.read), *other.open]) if is_changed else mismatch
        return None


class _Descriptions:
    """Cache of file descriptions by path; a changed file is described again."""

    def __init__(self) -> None:
        self._cache = LRUCache(lambda: MAX_FILES)

    def recall(self, uri: str) -> _Description | None:
        """Return the cached description of a file without accessing the file."""
        description: _Description | None = self._cache.get(uri)
        return description

    def of(self, uri: str, assumed: FileSignature | None = None) -> _Description:
        """Return a file's description, compared with its assumed signature."""
        state, cached = _state(uri), self.recall(uri)
        if cached is not None and cached.state == state and cached.knows(assumed):
            return cached
        return self._store(uri, scan(uri), state, assumed)

    def gather(self, signatures: Mapping[str, FileSignature | None]) -> None:
        """Describe many files in processes; errors surface when one is requested."""
        prefetch_states(signatures)
        states = {}
        for uri, assumed in signatures.items():
            known = self.recall(uri)
            with suppress(AggarrayError):
                state = _state(uri)
                if known is None or known.state != state or not known.knows(assumed):
                    states[uri] = state
        if len(states) < FEW_FILES and not any(map(is_remote, states)):
            return
        items = list(states.items())

        def receive(number: int, result: Result) -> bool:
            uri, state = items[number]
            if isinstance(result, Structure):
                self._store(uri, result, state, signatures[uri])
            return True

        with start_pool() as pool:
            pool.run([(uri, None) for uri in states], receive)

    def _store(self, uri: str, structure: Structure, state: tuple[int, ...], assumed: FileSignature | None) -> _Description:
        compared: tuple[_Comparison, ...] = ()
        if assumed is not None:
            compared = ((assumed, difference(structure, assumed), own_number(structure, assumed)),)
        cached = self.recall(uri)
        if cached is not None and cached.state == state:
            compared = (*compared, *cached.compared)[:_MAX_COMPARED]
        description = replace(_describe(structure, state), compared=compared)
        self._cache.keep(uri, description)
        return description


def _state(uri: str) -> tuple[int, ...]:
    """Return the state that identifies a version of a file."""
    try:
        status = stat_file(uri)
    except IndexFileError:
        raise
    except OSError:
        scan(uri)  # raises the more specific error
        raise MissingFileError("not accessible", path=uri, hint="check the path and its permissions") from None
    return status


def _describe(structure: Structure, state: tuple[int, ...]) -> _Description:
    variables: dict[str, Template | str] = dict(structure.skipped)
    for variable in structure.variables:
        if any(mark in variable.attrs for mark in _AGGREGATION_MARKS):
            variables[variable.name] = NESTED
            continue
        try:
            variables[variable.name] = template_of(variable, structure, (True,) * len(variable.shape))
        except AggarrayError as error:
            error.path = error.variable = None
            variables[variable.name] = str(error)
    # Only a scan with paths keeps the variables in order of creation.
    ordered = structure.sizes is not None and not structure.skipped
    return _Description(state, variables, tuple(v.name for v in structure.variables) if ordered else None)


_descriptions = _Descriptions()


def touched(matrix: Matrix, rows: Sequence[DimensionPlan]) -> np.ndarray:
    """Return the flat numbers of cells that ``rows`` of dimensions touch."""
    flat = np.zeros(1, np.int64)
    for count, row in zip(matrix.cells, rows, strict=True):
        flat = (flat[:, np.newaxis] * count + row.cells).ravel()
    return flat


def resolve_references(matrix: Matrix, cells: np.ndarray | None, step: Step, access: Access = ANYWHERE) -> Matrix:
    """Return the matrix with the real templates of the sub-arrays of cells.

    ``cells`` None: all cells. ``step``: units of the master, for sub-arrays without units; ``access``: which files may be
    opened, and whether missing files become missing partitions. Raises MissingFileError or FormatError with file, variable and
    the difference from the index.
    """
    references = matrix.references
    declared = np.array([t.declared for t in references.templates], bool)
    if not declared.any():
        return matrix
    refs = distinct(matrix.refs if cells is None else matrix.refs[cells])
    refs = refs[refs >= 0]
    refs = refs[declared[references.template[refs]]]
    if not refs.size:
        return matrix
    refs = refs[np.argsort(references.uri[refs], kind="stable")]
    resolver, missing = _Resolver(references, step), list[int]()
    with access.reach():
        for start in range(0, len(refs), _BATCH):
            rows = refs[start : start + _BATCH].tolist()
            resolver.gather(rows, access)
            missing += [row for row in rows if not resolver.resolve(row, access)]
    refs = np.where(np.isin(matrix.refs, missing), np.int32(-1), matrix.refs) if missing else matrix.refs
    return replace(matrix, references=resolver.references(), refs=refs)


def known_references(references: References, row: int, step: Step) -> References | None:
    """Return a sub-array with its real template; None if not known yet."""
    uri = references.uri_of(row)
    description = _descriptions.recall(uri) if uri is not None and references.template_of(row).declared else None
    assumed = references.template_of(row).assumed
    if description is None or not description.knows(assumed) or description.mismatch(assumed, references.seen_of(row)):
        return None  # a read raises the error
    resolver = _Resolver(references.take(np.array([row])), step)
    try:
        resolver.put(0, description)
    except FormatError:
        return None  # a read raises the error
    return resolver.references()


def located(error: AggarrayError, uri: str, variable: str) -> AggarrayError:
    """Return a copy of an error of a file, with the requested variable."""
    if error.path not in (None, uri):
        return type(error)(str(error), path=uri, variable=variable)
    return type(error)(error.what, path=uri, variable=variable, hint=error.hint)


class _Resolver:
    def __init__(self, references: References, step: Step) -> None:
        self._old, self._step = references, step
        self._templates = list(references.templates)
        self._template, self._variable = references.template.copy(), references.variable.copy()
        self._variables = list(references.variables)
        self._numbers: dict[tuple[int, int], int] = {}

    def references(self) -> References:
        templates, variables = tuple(self._templates), tuple(self._variables)
        return replace(self._old, templates=templates, template=self._template, variable=self._variable, variables=variables)

    def gather(self, rows: Sequence[int], access: Access) -> None:
        """Describe the files of many sub-arrays before they are resolved."""
        if len(rows) < FEW_FILES and not any(is_remote(str(self._old.uri_of(row))) for row in rows):
            return
        signatures = {}
        for row in rows:
            uri = str(self._old.uri_of(row))
            access.check(uri)
            signatures[uri] = self._old.template_of(row).assumed
        _descriptions.gather(signatures)

    def resolve(self, row: int, access: Access) -> bool:
        """Resolve one template; False if its file is missing, and that is allowed."""
        uri = str(self._old.uri_of(row))
        access.check(uri)
        try:
            assumed = self._old.template_of(row).assumed
            described = _descriptions.of(uri, assumed)
        except MissingFileError as error:
            if access.missing == "fill":
                return False
            hint = "restore it, or open with missing='fill'"
            raise MissingFileError("no such file", path=uri, variable=self._name(row), hint=hint) from error
        except AggarrayError as error:
            raise located(error, uri, self._name(row)) from error
        mismatch = described.mismatch(assumed, self._old.seen_of(row))
        if mismatch is not None:
            raise FormatError(mismatch.what, path=uri, variable=self._name(row), hint=mismatch.hint)
        self.put(row, described)
        return True

    def _name(self, row: int) -> str:
        return str(self._variables[int(self._variable[row])])

    def put(self, row: int, described: _Description) -> None:
        """Replace the declared template of a sub-array by that of its file."""
        try:
            if self._name(row).startswith(NUMBER_MARK) and self._name(row) not in described.variables:
                name = _numbered(self._name(row), described)
                if name not in self._variables:
                    self._variables.append(name)
                self._variable[row] = self._variables.index(name)
            real = described.variables.get(self._name(row))
            if real is None:
                raise FormatError("no such variable", hint=f"it has {_listed(described)}")
            if isinstance(real, str):
                raise (IndexFileError if real is NESTED else FormatError)(real)
            # Descriptions keep the real templates alive, so that their ids identify them.
            key = (id(real), int(self._old.template[row]))
            if key not in self._numbers:
                self._numbers[key] = len(self._templates)
                declared = self._old.template_of(row)
                matched = match(real, declared, self._step) if declared.unresolved else _confirmed(real, declared)
                self._templates.append(matched)
            self._template[row] = self._numbers[key]
        except (FormatError, IndexFileError) as error:
            error.path, error.variable = self._old.uri_of(row), self._name(row)
            raise


def _confirmed(real: Template, assumed: Template) -> Template:
    """Return an assumed template as verified; FormatError if sizes differ.

    The comparison of signatures covers the attributes, which fixes may replace.
    """
    there, expected = ((t.shape, str(t.encoding.stored), t.format) for t in (real, assumed))
    if there != expected:
        mismatch = Mismatch(f"not as assumed: shape, dtype and format are {there}, not {expected}")
        raise FormatError(mismatch.what, hint=mismatch.hint)
    return replace(assumed, declared=False, assumed=None)


def _numbered(name: str, described: _Description) -> str:
    number = name.removeprefix(NUMBER_MARK)
    if described.numbered is None:
        raise FormatError("the index refers to it by number, which this format does not store", hint="name it in the index")
    if not number.isdecimal() or int(number) >= len(described.numbered):
        raise FormatError(f"number out of range: the file has {len(described.numbered)} variables: {_listed(described)}")
    return described.numbered[int(number)]


def _listed(described: _Description) -> str:
    names = list(described.variables)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") or "none"


def match(real: Template, declared: Template, step: Step) -> Template:
    """Return the real template with dimensions and directions as declared.

    ``step``: units where none are stated. Dimensions are matched by name, the remaining ones by position, without those of
    size 1 if the numbers differ. Raises FormatError for a dimension of another size, and for unmatched dimensions.
    """
    pairs = dict(_pairs(real, declared))
    names = declared.names or declared.dimensions
    dimensions, directions = [], []
    for axis, (name, size) in enumerate(zip(real.dimensions, real.shape, strict=True)):
        if axis not in pairs:
            while name in declared.dimensions:
                name = f"{name}_"
            dimensions.append(name)
            directions.append(True)
            continue
        other = pairs[axis]
        if size != declared.shape[other]:
            also = "" if name == names[other] else f" for {names[other]!r}"
            raise FormatError(
                f"dimension {name!r} has size {size}, but {declared.shape[other]}{also} in the index",
                hint="restore the file that was indexed, or make the index again",
            )
        dimensions.append(declared.dimensions[other])
        directions.append(declared.directions[other])
    own = declared.units is None and real.units is not None
    units = (real.units, real.calendar) if own else declared.units_in(step.units, step.calendar)
    steps = declared.steps
    if steps and not real.encoding.packed:
        # The file states the encoding of the master for its own values: no further decoding.
        same = (steps[0].encoding, steps[0].units, steps[0].calendar) == (real.encoding, *units)
        steps = steps[1:] if same else steps
    real = replace(real, dimensions=tuple(dimensions), directions=tuple(directions))
    return replace(real, units=units[0], calendar=units[1], steps=steps)


def _pairs(real: Template, declared: Template) -> Iterator[tuple[int, int]]:
    names = declared.names or declared.dimensions
    named = {axis: names.index(name) for axis, name in enumerate(real.dimensions) if name in names}
    own = [axis for axis in range(len(real.shape)) if axis not in named]
    other = [axis for axis in range(len(names)) if axis not in named.values()]
    if len(own) != len(other):
        own = [axis for axis in own if real.shape[axis] != 1]
        other = [axis for axis in other if declared.shape[axis] != 1]
    if len(own) != len(other):
        sizes = (dict(zip(real.dimensions, real.shape, strict=True)), dict(zip(names, declared.shape, strict=True)))
        raise FormatError(f"its dimensions are {sizes[0]}, but {sizes[1]} in the index; only those of size 1 may differ")
    yield from named.items()
    yield from zip(own, other, strict=True)
