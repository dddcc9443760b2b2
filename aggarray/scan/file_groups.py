"""Groups of similar files, opened by a sample of each (trust="assume").

Files whose paths differ only in digits form a group. The first, the last and, for each number in the path, one file in which
it differs are scanned completely. What these files share is assumed of the rest; the coordinates and attributes in which they
differ are read from every file. A file that this does not describe is scanned completely. Nothing is verified here:
`scan.resolution` compares assumed files before their first read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aggarray.cf.frozen import frozen
from aggarray.dataclass import dataclass, field, replace
from aggarray.formats.base import Attributes, Structure, Variable
from aggarray.formats.partial_scan import COORDINATE_ATTRIBUTES, PartialScan, PartialScanRequest, Result
from aggarray.partition.signatures import FileSignature, VariableSignature
from aggarray.scan.comparison import as_text, groups_of, identity_of, signature_of, signatures_of
from aggarray.scan.files import start_pool
from aggarray.scan.progress import Progress, reporting
from aggarray.scan.roles import samplings_of
from aggarray.scan.structure_table import StructureTable
from aggarray.scan.workers import Receive

#: Groups with fewer files are scanned completely.
_FEW = 4
#: Kept of a file whose partial scan does not describe it.
_UNCERTAIN = object()
#: Only this many numbers of a path, the last ones, select files to scan.
_NUMBERS = 8

_DIGITS = re.compile("([0-9]+)")


@dataclass(frozen=True, slots=True)
class FileGroup:
    """What the files of a group share, and what is read of each.

    ``resized``: shared variables by name and shape.
    """

    model: Structure
    request: PartialScanRequest
    assumed: FileSignature
    resized: dict[tuple[str, tuple[int, ...]], Variable] = field(default_factory=dict)


def scan_trusting(
    paths: Sequence[str],
    identifying: Sequence[str],
    receive: Receive,
    table: StructureTable,
    processes: int | None = None,
    progress: Progress | None = None,
) -> list[Any]:
    """Scan a sample of each group; return what ``receive`` keeps of each file.

    ``identifying``: global attributes that separate datasets; ``receive`` adds structures of data to ``table`` and returns the
    row, for other results something else. Structures of files that were not scanned are marked as `assumed`.
    """
    results: list[Any] = [None] * len(paths)
    groups, report = group_files(paths), reporting(progress, len(paths), receive)
    with start_pool(processes) as pool:

        def scan(numbers: Sequence[int], shared: Sequence[FileGroup | None]) -> None:
            def received(n: int, result: Result) -> Any:
                if not isinstance(result, PartialScan):
                    return report(numbers[n], result)
                structure = None if (group := shared[n]) is None else compared_attributes(result, group)
                return _UNCERTAIN if structure is None else report(numbers[n], structure)

            requests = [None if group is None else group.request for group in shared]
            tasks = [(paths[n], request) for n, request in zip(numbers, requests, strict=True)]
            for number, kept in zip(numbers, pool.run(tasks, received), strict=True):
                results[number] = kept

        probes = [number for group in groups for number in probes_of([paths[n] for n in group], group)]
        scan(probes, [None] * len(probes))
        numbers, shared = list[int](), list[FileGroup | None]()
        for group in groups:
            own = [n for n in group if results[n] is None]
            shared += [_group_of([results[n] for n in group], table, identifying) if own else None] * len(own)
            numbers += own
        scan(numbers, shared)
        remaining = [n for n in numbers if results[n] is _UNCERTAIN]
        scan(remaining, [None] * len(remaining))
    return results


def _group_of(seen: Sequence[Any], table: StructureTable, identifying: Sequence[str]) -> FileGroup | None:
    """Return what the scanned files of a group share, None for indexes."""
    if any(isinstance(kept, Structure) for kept in seen):
        return None
    return find_group([table[row] for row in seen if isinstance(row, int)], identifying)


def group_files(paths: Sequence[str]) -> list[list[int]]:
    """Group the numbers of paths that differ only in their digits.

    >>> group_files(["/a/tas_2001.nc", "/a/pr_2001.nc", "/a/tas_2002.nc"])
    [[0, 2], [1]]
    """
    groups: dict[str, list[int]] = {}
    for number, path in enumerate(paths):
        groups.setdefault(_DIGITS.sub("0", path), []).append(number)
    return list(groups.values())


def probes_of(paths: Sequence[str], numbers: Sequence[int]) -> list[int]:
    """Return the numbers of the scanned files of a group (all of a small one).

    >>> probes_of(["/r1/1.nc", "/r1/2.nc", "/r1/3.nc", "/r2/1.nc", "/r2/2.nc", "/r2/3.nc"], range(10, 16))
    [10, 11, 13, 15]
    """
    if len(paths) < _FEW:
        return list(numbers)
    fields = [_DIGITS.findall(path)[-_NUMBERS:] for path in paths]
    chosen = {0, len(paths) - 1}
    for column in zip(*fields, strict=True):
        chosen.update([next((n for n, value in enumerate(column) if value != column[0]), 0)])
    return [numbers[n] for n in sorted(chosen)]


def find_group(scanned: Sequence[Structure], identifying: Sequence[str]) -> FileGroup | None:
    """Return what scanned files share; None if it does not describe others."""
    if len(scanned) < 2:
        return None
    model, names = scanned[0], [v.name for v in scanned[0].variables]
    if any((s.format, s.skipped, [v.name for v in s.variables]) != (model.format, model.skipped, names) for s in scanned):
        return None
    if samplings_of(model):
        return None  # each file has its own row sizes
    columns = {vs[0].name: vs for vs in zip(*(s.variables for s in scanned), strict=True)}
    # The coordinates of at most one dimension that differ between files, and those along the same dimensions.
    short = {n: vs for n, vs in columns.items() if all(v.values is not None and len(v.dimensions) < 2 for v in vs)}
    read = {name for name, vs in short.items() if len(set(map(signature_of, vs))) > 1}
    along = frozenset(d for name in read for d in columns[name][0].dimensions)
    read |= {name for name, vs in short.items() if vs[0].dimensions and along.issuperset(vs[0].dimensions)}
    if not all(_is_identifying(vs, name in read, along) for name, vs in columns.items()) or not _measured(scanned, read, along):
        return None
    owners = [[v.attrs for v in column] for column in columns.values()]
    owners += [[s.groups.get(name, {}) for s in scanned] for name in model.groups]
    if any(identity_of(attrs, identifying) != identity_of(own[0], identifying) for own in owners for attrs in own):
        return None
    facts = [signatures_of(s, identifying) for s in scanned]
    if any(_parts(s, f) != _parts(model, facts[0]) for s, f in zip(scanned, facts, strict=True)):
        return None
    stated = [identity_of(s.attrs, identifying) for s in scanned]
    open_ = tuple(name for name in identifying if len({t[name] for t in stated}) > 1)
    request = PartialScanRequest({name: len(columns[name][0].dimensions) for name in sorted(read)}, open_)
    fixed = {name: text for name, text in stated[0].items() if name not in open_}
    groups = groups_of(model, identifying)
    assumed = FileSignature(model.uri, model.format, facts[0], fixed, groups, open_, frozenset(read), along)
    return FileGroup(_common_structure(scanned, columns), request, assumed)


def _parts(structure: Structure, facts: Mapping[str, VariableSignature]) -> object:
    stated = as_text(structure.attrs.get("coordinates"))
    return stated, {name: (f.hung, f.data, f.parent) for name, f in facts.items()}


Column = tuple[Variable, ...]


def _is_identifying(column: Column, read: bool, along: frozenset[str]) -> bool:
    """Return whether a variable is equal in all files, except what is read."""
    if len({v.dimensions for v in column}) > 1:
        return False
    if read:
        # A partial scan reads only numbers.
        is_data = all(v.dtype.kind in "iuf" for v in column)
        return is_data and len({_stated(v, leaving=COORDINATE_ATTRIBUTES) for v in column}) == 1
    own_values = not along.isdisjoint(column[0].dimensions)
    if len({(_stated(v), v.dtype, f.falls) for v in column for f in (signature_of(v),)}) > 1:
        return False
    sizes = {tuple(n for d, n in zip(v.dimensions, v.shape, strict=True) if d not in along) for v in column}
    return len(sizes) == 1 and (own_values or len({signature_of(v).digest for v in column}) == 1)


def _stated(variable: Variable, leaving: Sequence[str] = ()) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in signature_of(variable).attrs if name not in leaving)


def _measured(scanned: Sequence[Structure], read: set[str], along: frozenset[str]) -> bool:
    """Return whether the coordinates that are read determine all sizes."""
    for structure in scanned:
        sizes = _sizes([v for v in structure.variables if v.name in read])
        if sizes is None or sizes.keys() != along:
            return False
        for variable in structure.variables:
            if any(sizes.get(d, n) != n for d, n in zip(variable.dimensions, variable.shape, strict=True)):
                return False
    return True


def _sizes(coordinates: Sequence[Variable]) -> dict[str, int] | None:
    sizes: dict[str, int] = {}
    for variable in coordinates:
        for d, n in zip(variable.dimensions, variable.shape, strict=True):
            if sizes.setdefault(d, n) != n:
                return None
    return sizes


def _common_structure(scanned: Sequence[Structure], columns: Mapping[str, Column]) -> Structure:
    model = scanned[0]
    variables = [replace(v, attrs=_shared_attributes([other.attrs for other in columns[v.name]])) for v in model.variables]
    groups = {name: _shared_attributes([s.groups.get(name, {}) for s in scanned]) for name in model.groups}
    attrs = _shared_attributes([s.attrs for s in scanned])
    return replace(model, attrs=attrs, variables=tuple(variables), groups=groups)


def _shared_attributes(all_attrs: Sequence[Attributes]) -> Attributes:
    texts = [{name: as_text(value) for name, value in attrs.items()} for attrs in all_attrs]
    return frozen({name: v for name, v in all_attrs[0].items() if all(t.get(name) == texts[0][name] for t in texts)})


def compared_attributes(seen: PartialScan, group: FileGroup) -> Structure | None:
    """Return the structure assumed after a partial scan; None if uncertain."""
    model, own = group.model, {v.name: v for v in seen.variables}
    for v in model.variables:
        if v.name in own:
            # Values, units and calendar are those of the file.
            shared = {name: value for name, value in v.attrs.items() if name not in COORDINATE_ATTRIBUTES}
            own[v.name] = replace(own[v.name], dimensions=v.dimensions, attrs={**shared, **own[v.name].attrs})
    sizes = _sizes([own[v.name] for v in model.variables if v.name in own])
    if sizes is None:
        return None
    variables = []
    for v in model.variables:
        if v.name in own or sizes.keys().isdisjoint(v.dimensions):
            variables.append(own.get(v.name, v))
            continue
        # Values along the dimensions of the file itself are read on access.
        key = v.name, tuple(sizes.get(d, n) for d, n in zip(v.dimensions, v.shape, strict=True))
        if key not in group.resized:
            group.resized[key] = replace(v, shape=key[1], values=None)
        variables.append(group.resized[key])
    attrs = model.attrs if not seen.attrs else frozen({**model.attrs, **seen.attrs})
    paths = None if model.sizes is None else {p: sizes.get(p.rpartition("/")[2], n) for p, n in model.sizes.items()}
    return replace(
        model, uri=seen.uri, attrs=attrs, variables=tuple(variables), sizes=paths, stamp=seen.stamp, assumed=group.assumed
    )
