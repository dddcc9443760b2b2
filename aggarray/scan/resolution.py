"""What is a sub-array really that so far only an index has told of, or another file of its kind?

An index names sub-arrays that nobody has opened: their templates are `declared`. Before a read touches such a sub-array,
its file is scanned and the declared template replaced by the real one: dimensions matched to those of the index, sizes
compared, dtype, packing, missing values and units as the file has them. What scanning found is kept by file identity.

A template that is `assumed` says in full what the file should be like: here the file is held against that, as a whole.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from aggarray.errors import AggarrayError, FormatError, IndexFileError, MissingFileError
from aggarray.formats import scan
from aggarray.formats.base import Structure
from aggarray.formats.templates import template_of
from aggarray.partition.matrix import Matrix, References, Step, Template
from aggarray.partition.plan import DimensionPlan
from aggarray.partition.signatures import FileSignature
from aggarray.scan.comparison import HINT, difference, not_the_same, own_number
from aggarray.scan.workers import FEW_FILES, WorkerPool
from aggarray.storage.access import ANYWHERE, Access
from aggarray.storage.files import stat_file
from aggarray.storage.remote import is_remote, prefetch_states

#: The descriptions of this many files are kept.
KEPT_FILES = 16384
#: So many sub-arrays at most are looked at together.
_TOGETHER = 4096
#: A file is remembered to be like this many kinds.
_COMPARED = 4

#: How an index that has only the number of a variable names it.
NUMBER_MARK = "#"

#: Why an index does not name others.
NESTED = "an aggregation variable itself: name the files that it is made of"

_AGGREGATION_MARKS = ("aggregated_data", "cfa_array", "nca_array")


@dataclass(frozen=True, slots=True)
class _Description:
    """What a file has: a template per variable, or why it cannot be used; ``numbered``: the names by number, if certain.

    ``compared``: what it was compared with as a whole, in what it differs from that, if it does, and the number for what would
    be read of it when it was assumed.
    """

    state: tuple[int, ...]
    variables: dict[str, Template | str]
    numbered: tuple[str, ...] | None
    compared: tuple[tuple[FileSignature, str | None, int], ...] = ()

    def knows(self, assumed: FileSignature | None) -> bool:
        """Tell whether the file was compared with what was assumed of it, if anything was."""
        return assumed is None or any(other is assumed or other == assumed for other, _, _ in self.compared)

    def verdict(self, assumed: FileSignature | None, seen: int | None) -> str | None:
        """Return in what a file differs from what was assumed and ``seen`` of it, None where in nothing."""
        for other, text, number in self.compared if assumed is not None else ():
            if other is assumed or other == assumed:
                return not_the_same([*sorted(other.read), *other.open]) if text is None and seen not in (None, number) else text
        return None


class _Descriptions:
    """Descriptions of files by path, the latest used ones; one of a file that has changed since is made anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Description] = OrderedDict()
        if hasattr(os, "register_at_fork"):
            # promise: descriptions-lock-fork
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        # The lock may have been held by a thread that the child does not have.
        self._lock = threading.Lock()

    def recall(self, uri: str) -> _Description | None:
        """Return what is known of a file, without touching it."""
        with self._lock:
            return self._known.get(uri)

    def of(self, uri: str, assumed: FileSignature | None = None) -> _Description:
        """Return what a file has, compared with what was assumed of it; MissingFileError or FormatError if it does not open."""
        state = _state(uri)
        with self._lock:
            known = self._known.get(uri)
            if known is not None and known.state == state and known.knows(assumed):
                self._known.move_to_end(uri)
                return known
        return self._keep(uri, scan(uri), state, assumed)

    def gather(self, wanted: Mapping[str, FileSignature | None]) -> None:
        """Look at many files at once, by several processes; what is wrong with one is told when it is asked for."""
        prefetch_states(wanted)
        states = {}
        for uri, assumed in wanted.items():
            known = self.recall(uri)
            with suppress(AggarrayError):
                state = _state(uri)
                if known is None or known.state != state or not known.knows(assumed):
                    states[uri] = state
        if len(states) < FEW_FILES and not any(map(is_remote, states)):
            return
        with WorkerPool() as crew:
            found = crew.run([(uri, None) for uri in states])
        for (uri, state), structure in zip(states.items(), found, strict=True):
            if isinstance(structure, Structure):
                self._keep(uri, structure, state, wanted[uri])

    def _keep(self, uri: str, structure: Structure, state: tuple[int, ...], assumed: FileSignature | None) -> _Description:
        found = _describe(structure, state)
        if assumed is not None:
            found = replace(found, compared=((assumed, difference(structure, assumed), own_number(structure, assumed)),))
        with self._lock:
            known = self._known.get(uri)
            if known is not None and known.state == state:
                found = replace(found, compared=(*found.compared, *known.compared)[:_COMPARED])
            self._known[uri] = found
            self._known.move_to_end(uri)
            while len(self._known) > KEPT_FILES:
                self._known.popitem(last=False)
        return found


def _state(uri: str) -> tuple[int, ...]:
    """Return what tells that a file has changed; MissingFileError or FormatError where it does not open."""
    try:
        status = stat_file(uri)
    except IndexFileError:
        raise
    except OSError:
        scan(uri)  # knows best what is wrong with it
        raise MissingFileError(f"{uri}: cannot be looked at; check the path and its permissions") from None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _describe(structure: Structure, state: tuple[int, ...]) -> _Description:
    variables: dict[str, Template | str] = dict(structure.skipped)
    for variable in structure.variables:
        if any(mark in variable.attrs for mark in _AGGREGATION_MARKS):
            variables[variable.name] = NESTED
            continue
        try:
            variables[variable.name] = template_of(variable, structure, (True,) * len(variable.shape))
        except AggarrayError as error:
            variables[variable.name] = str(error)
    # Other ways of scanning know the variables by name only, not in the order in which they were made.
    ordered = structure.sizes is not None and not structure.skipped
    return _Description(state, variables, tuple(v.name for v in structure.variables) if ordered else None)


_descriptions = _Descriptions()


def touched(matrix: Matrix, rows: Sequence[DimensionPlan]) -> np.ndarray:
    """Return the flat numbers of the cells that a selection touches; ``rows``: of `plan.along`, one per dimension."""
    flat = np.zeros(1, np.int64)
    for count, row in zip(matrix.cells, rows, strict=True):
        flat = (flat[:, np.newaxis] * count + row.cells).ravel()
    return flat


def resolve_references(matrix: Matrix, cells: np.ndarray | None, step: Step, access: Access = ANYWHERE) -> Matrix:
    """Return the matrix with the real templates of the sub-arrays that some cells (None: all) refer to.

    ``step``: units of the master, for sub-arrays that have none; ``access``: which files may be opened, and whether partitions
    of files that are gone become missing ones. Raises MissingFileError or FormatError naming file, variable and what differs
    from the index.
    """
    references = matrix.references
    declared = np.array([t.declared for t in references.templates], bool)
    if not declared.any():
        return matrix
    refs = np.unique(matrix.refs if cells is None else matrix.refs[cells])
    refs = refs[refs >= 0]
    refs = refs[declared[references.template[refs]]]
    if not refs.size:
        return matrix
    refs = refs[np.argsort(references.uri[refs], kind="stable")]
    work, lost = _Resolver(references, step), list[int]()
    with access.reach():
        for start in range(0, len(refs), _TOGETHER):
            rows = refs[start : start + _TOGETHER].tolist()
            work.gather(rows, access)
            lost += [row for row in rows if not work.settle(row, access)]
    refs = np.where(np.isin(matrix.refs, lost), np.int32(-1), matrix.refs) if lost else matrix.refs
    return replace(matrix, references=work.references(), refs=refs)


def known_references(references: References, row: int, step: Step) -> References | None:
    """Return a table of the one sub-array, with its real template if its file was opened before; no file is touched.

    None where it is known already, or nothing more is known of it.
    """
    uri = references.uri_of(row)
    known = _descriptions.recall(uri) if uri is not None and references.template_of(row).declared else None
    assumed = references.template_of(row).assumed
    if known is None or not known.knows(assumed) or known.verdict(assumed, references.seen_of(row)) is not None:
        return None  # whoever reads it is told in what it differs
    work = _Resolver(references.take(np.array([row])), step)
    try:
        work.put(0, known)
    except FormatError:
        return None  # whoever reads it is told
    return work.references()


class _Resolver:
    """Columns of references under change."""

    def __init__(self, references: References, step: Step) -> None:
        self._old, self._step = references, step
        self._templates = list(references.templates)
        self._template, self._variable = references.template.copy(), references.variable.copy()
        self._variables = list(references.variables)
        self._numbers: dict[tuple[int, int], int] = {}

    def references(self) -> References:
        """Return the references as they are now."""
        return replace(
            self._old,
            templates=tuple(self._templates),
            template=self._template,
            variable=self._variable,
            variables=tuple(self._variables),
        )

    def gather(self, rows: Sequence[int], access: Access) -> None:
        """Look at the files of many sub-arrays before these are settled one by one."""
        if len(rows) < FEW_FILES and not any(is_remote(str(self._old.uri_of(row))) for row in rows):
            return
        wanted = {}
        for row in rows:
            uri = str(self._old.uri_of(row))
            access.check(uri)
            wanted[uri] = self._old.template_of(row).assumed
        _descriptions.gather(wanted)

    def settle(self, row: int, access: Access) -> bool:
        """Give one sub-array its real template; False where its file is gone and may be."""
        uri = str(self._old.uri_of(row))
        access.check(uri)
        try:
            assumed = self._old.template_of(row).assumed
            described = _descriptions.of(uri, assumed)
        except MissingFileError as error:
            if access.missing == "fill":
                return False
            text = "no such file; restore it, or open with missing='fill'"
            raise MissingFileError(f"{uri}, variable {self._name(row)!r}: {text}") from error
        except AggarrayError as error:
            text = str(error).removeprefix(f"{uri}: ")
            raise type(error)(f"{uri}, variable {self._name(row)!r}: {text}") from error
        verdict = described.verdict(assumed, self._old.seen_of(row))
        if verdict:
            raise FormatError(f"{uri}, variable {self._name(row)!r}: not what was assumed of it: {verdict}")
        self.put(row, described)
        return True

    def _name(self, row: int) -> str:
        return str(self._variables[int(self._variable[row])])

    def put(self, row: int, described: _Description) -> None:
        """Replace the declared template of a sub-array by what its file has."""
        where = f"{self._old.uri_of(row)}, variable {self._name(row)!r}"
        if self._name(row).startswith(NUMBER_MARK) and self._name(row) not in described.variables:
            self._rename(row, _numbered(self._name(row), described, where))
        real = described.variables.get(self._name(row), f"no such variable; it has {_listed(described)}")
        if isinstance(real, str):
            raise (IndexFileError if real is NESTED else FormatError)(f"{where}: {real}")
        # Real templates are shared between files alike, and kept by the description: their identity will do.
        key = (id(real), int(self._old.template[row]))
        if key not in self._numbers:
            self._numbers[key] = len(self._templates)
            taken = self._old.template_of(row)
            matched = match(real, taken, self._step, where) if taken.unresolved else _confirmed(real, taken, where)
            self._templates.append(matched)
        self._template[row] = self._numbers[key]

    def _rename(self, row: int, name: str) -> None:
        if name not in self._variables:
            self._variables.append(name)
        self._variable[row] = self._variables.index(name)


def _confirmed(real: Template, assumed: Template, where: str) -> Template:
    """Return an assumed template as a verified one; FormatError, which begins with ``where``, if it is not the real one.

    The file as a whole was compared before: what is left are sizes along dimensions whose coordinates it was asked for.
    """
    if (real.shape, real.encoding, real.format) != (assumed.shape, assumed.encoding, assumed.format):
        raise FormatError(
            f"{where}: not what was assumed of it: of shape {real.shape}, {real.encoding.dtype}, {real.format}; "
            f"{assumed.shape}, {assumed.encoding.dtype}, {assumed.format} should be: {HINT}"
        )
    return replace(assumed, declared=False, assumed=None)


def _numbered(name: str, described: _Description, where: str) -> str:
    number = name.removeprefix(NUMBER_MARK)
    if described.numbered is None:
        raise FormatError(f"{where}: the index names it by its number, which this file does not keep: name it in the index")
    if not number.isdecimal() or int(number) >= len(described.numbered):
        raise FormatError(f"{where}: the file has {len(described.numbered)} variables: {_listed(described)}")
    return described.numbered[int(number)]


def _listed(described: _Description) -> str:
    names = list(described.variables)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") or "none"


def match(real: Template, declared: Template, step: Step, where: str) -> Template:
    """Return the real template with dimensions and directions as declared; ``step``: units where nobody states any.

    Dimensions are matched by name, those left by position, with size-1 ones left out where the numbers differ. Raises
    FormatError, which begins with ``where``, for a dimension of another size or one too many.
    """
    pairs = dict(_pairs(real, declared, where))
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
            also = "" if name == names[other] else f" of its {names[other]!r}"
            raise FormatError(
                f"{where}: dimension {name!r} is of size {size}, the index says {declared.shape[other]}{also}: "
                "restore the file that was indexed, or make the index anew"
            )
        dimensions.append(declared.dimensions[other])
        directions.append(declared.directions[other])
    own = declared.units is None and real.units is not None
    units = (real.units, real.calendar) if own else declared.units_in(step.units, step.calendar)
    steps = declared.steps
    # What decodes the master decodes nothing more where the file says the same of its own values.
    if (
        steps
        and steps[0].encoding == real.encoding
        and not real.encoding.packed
        and (steps[0].units, steps[0].calendar) == units
    ):
        steps = steps[1:]
    return replace(
        real, dimensions=tuple(dimensions), directions=tuple(directions), units=units[0], calendar=units[1], steps=steps
    )


def _pairs(real: Template, declared: Template, where: str) -> Iterator[tuple[int, int]]:
    """Yield (axis of the file, axis of the index) for dimensions that are the same."""
    names = declared.names or declared.dimensions
    named = {axis: names.index(name) for axis, name in enumerate(real.dimensions) if name in names}
    own = [axis for axis in range(len(real.shape)) if axis not in named]
    other = [axis for axis in range(len(names)) if axis not in named.values()]
    if len(own) != len(other):
        own = [axis for axis in own if real.shape[axis] != 1]
        other = [axis for axis in other if declared.shape[axis] != 1]
    if len(own) != len(other):
        sizes = (dict(zip(real.dimensions, real.shape, strict=True)), dict(zip(names, declared.shape, strict=True)))
        raise FormatError(f"{where}: its dimensions are {sizes[0]}, the index says {sizes[1]}: only those of size 1 may differ")
    yield from named.items()
    yield from zip(own, other, strict=True)
