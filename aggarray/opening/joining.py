"""Joining of scanned files, for opening, appending and other rules."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from aggarray.aggregate.rules import Duplicate, Refusal, Rules, Skipped
from aggarray.aggregate.stages import Entry, aggregate
from aggarray.aggregate.variables import arrays_of
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import dataclass, field, replace
from aggarray.errors import LIBRARY_ERRORS, AggarrayError, AggregationError, IndexFileError
from aggarray.formats.base import Structure
from aggarray.index import SAVE_AGAIN, Opening
from aggarray.index.recognition import OURS, find_convention
from aggarray.index.uris import home_of, real_path
from aggarray.opening.provenance import Listing, Outcome, Provenance, Selection
from aggarray.scan.files import scan_each
from aggarray.storage.access import Access

if TYPE_CHECKING:
    from aggarray.formats.base import Attributes
    from aggarray.formats.partial_scan import Result
    from aggarray.index.conventions.foreign import Convention
    from aggarray.opening.catalogue import Given
    from aggarray.opening.checkpoint import Checkpoint
    from aggarray.partition.stored_sizes import ChunkIndexes
    from aggarray.scan.fixes import Fix
    from aggarray.scan.progress import Progress
    from aggarray.scan.structure_table import StructureTable
    from aggarray.scan.workers import Receive

#: The partial index from which scans of this context resume, and to which they save.
CHECKPOINT: ContextVar[Checkpoint | None] = ContextVar("aggarray_checkpoint", default=None)

_PLAIN_INDEX = "give attributes of its data files, or the index as a plain path"
_ELSEWHERE = "an index of files, not data: open it by itself, or name it in a list to join what it holds"


@dataclass(slots=True)
class Sources:
    """Contents of a source: structures, arrays, skipped files, generations.

    ``tables``: chunk indexes of the files, from the indexes that store them; ``errors``: of the files that cannot be read;
    ``fixes``: of each index among several sources.
    """

    structures: Sequence[Structure] = ()
    others: list[MasterArray] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    saved: dict[str, int] = field(default_factory=dict)
    tables: ChunkIndexes | None = None
    has_data: bool = False
    errors: list[AggarrayError] = field(default_factory=list)
    fixes: list[tuple[Fix, ...]] = field(default_factory=list)

    def common_fixes(self) -> tuple[Fix, ...]:
        """Return the fixes of the indexes; AggregationError if others lack them.

        They were declared for the files of one index: other files need not have the same faults.
        """
        if not any(self.fixes):
            return ()
        if any(fixes != self.fixes[0] for fixes in self.fixes) or self.has_data:
            hint = "give those for all files as fixes=[...], or fixes=None"
            raise AggregationError("an index among the sources has fixes, which other sources lack", hint=hint)
        return self.fixes[0]


def scan_sources(
    paths: Sequence[str],
    named: Iterable[str],
    rules: Rules,
    how: Opening,
    scan: tuple[int | None, Progress | None],
    given: Given | None = None,
) -> Sources:
    """Scan files; separate data files, indexes and unusable files.

    ``scan``: number of processes, progress callable. ``named``: paths that the source names individually; indexes found in
    a folder are skipped. ``given``: attributes of data files, from a catalogue.
    """
    sources, named, given = Sources(), set(named), given or {}
    table, scanned = (_scan_single if len(paths) == 1 else _scan_all)(paths, rules, how, scan, given)
    rows, indexed = list[int](), list[Structure]()
    for path, kept in zip(paths, scanned, strict=True):
        if isinstance(kept, int):
            rows.append(kept)
        elif isinstance(kept, AggarrayError):
            from aggarray.scan.discovery import skipped_file

            sources.errors.append(kept)
            sources.skipped.append(Skipped(path, None, skipped_file(path, kept)))
        elif (kind := find_convention(kept)) is None:
            sources.structures = [kept]
        elif path not in named:
            sources.skipped.append(Skipped(path, kind.name, _ELSEWHERE))
        elif given.get(path):
            raise AggregationError("a row gives attributes to an index", path=path, hint=_PLAIN_INDEX)
        else:
            indexed += _add_index(path, kept, kind, how, sources)
    if table is None:
        return replace(sources, structures=sources.structures or indexed)
    sources.has_data = bool(rows)
    rows = _without_references(rows, table, named, sources)
    if indexed:
        # A file known from several places counts once: as just scanned, otherwise as in the last index.
        rows = list({table.uris[row]: row for row in [*map(table.add, indexed), *rows]}.values())
    return replace(sources, structures=table.take(rows))


def _scan_single(
    paths: Sequence[str], _rules: Rules, how: Opening, scan: tuple[int | None, Progress | None], given: Given
) -> tuple[None, list[Any]]:
    """Return the structure or the error of one file."""

    def receive(number: int, result: Result) -> Any:
        return _completed(result, how.access, given.get(paths[number])) if isinstance(result, Structure) else result

    return None, scan_each(paths, receive, *scan)


def _scan_all(
    paths: Sequence[str], rules: Rules, how: Opening, scan: tuple[int | None, Progress | None], given: Given
) -> tuple[StructureTable, list[Any]]:
    """Scan files into a table.

    Returns for each file its row; errors, and the structures of indexes, as they are.
    """
    from aggarray.scan.structure_table import StructureTable

    table, checkpoint, trusting = StructureTable(), CHECKPOINT.get(), rules.trust != "verify"

    def receive(number: int, result: Result) -> Any:
        if isinstance(result, Structure):
            result = _completed(result, how.access, None if trusting else given.get(paths[number]))
        if isinstance(result, Structure) and find_convention(result) is None:
            row = table.add(result, paths[number] if result.uri == paths[number] else None)
            if checkpoint is not None:
                checkpoint.update(table)
            return row
        return result

    if not trusting:
        recalled = {} if checkpoint is None else {n: checkpoint.recall(path, given.get(path)) for n, path in enumerate(paths)}
        known = {n: s for n, s in recalled.items() if s is not None}
        if not known:
            return table, scan_each(paths, receive, *scan)
        kept: list[Any] = [table.add(known[n], path) if n in known else None for n, path in enumerate(paths)]
        new = [n for n in range(len(paths)) if n not in known]
        scanned = scan_each([paths[n] for n in new], lambda n, result: receive(new[n], result), *scan) if new else []
        for number, result in zip(new, scanned, strict=True):
            kept[number] = result
        return table, kept
    return _scan_trusting(paths, rules, receive, table, scan, given)


def _scan_trusting(
    paths: Sequence[str],
    rules: Rules,
    receive: Receive,
    table: StructureTable,
    scan: tuple[int | None, Progress | None],
    given: Given,
) -> tuple[StructureTable, list[Any]]:
    """Scan files into a table, a few of each group; see `_scan_all`."""
    from aggarray.scan.file_groups import scan_trusting

    # What rows give is not read from files, nor compared with them.
    names = {name for attrs in given.values() for name in attrs}
    scanned = scan_trusting(paths, [name for name in rules.identifying if name not in names], receive, table, *scan)
    if given:
        from aggarray.opening.catalogue import table_with_given

        table = table_with_given(table, given)
    return table, scanned


def _without_references(rows: list[int], table: StructureTable, named: set[str], sources: Sources) -> list[int]:
    """Leave out reference files next to their data.

    They would contribute the same arrays twice.
    """
    if not any(variant.model.has_external_coordinates for variant in table.variants):
        return rows
    doubles = {row for row in rows if table.variants[table.variant[row]].model.has_external_coordinates}
    doubles = {row for row in doubles if table.uris[row] not in named}
    if len(doubles) == len(rows):
        return rows
    sources.skipped += [Skipped(table.uris[row], None, _ELSEWHERE) for row in sorted(doubles)]
    return [row for row in rows if row not in doubles]


def _add_index(path: str, structure: Structure, kind: Convention, how: Opening, sources: Sources) -> Iterable[Structure]:
    """Add what an index holds; return the structures of its files."""
    if kind is not OURS:
        sources.others += foreign_arrays(structure, kind, how)
        return ()
    from aggarray.index.loading import load
    from aggarray.partition.stored_sizes import join_chunk_indexes

    loaded = load(path, how)
    sources.saved[real_path(path)] = loaded.generation
    sources.fixes.append(fixes_of(loaded.details, path, how))
    sources.tables = join_chunk_indexes(sources.tables, tables_of(loaded.arrays))
    sources.others += loaded.others()
    return loaded.structures()


def fixes_of(details: Mapping[str, Any], path: str, how: Opening) -> tuple[Fix, ...]:
    """Return the fixes of an index; those of earlier releases have none."""
    if "fixes" not in details:
        return ()
    from aggarray.opening.fixing import restored_fixes

    try:
        return restored_fixes(details["fixes"], home_of(path), how)
    except (*LIBRARY_ERRORS, RecursionError) as error:
        what = f"a damaged index ({' '.join(repr(error).split()):.200})"
        raise IndexFileError(what, path=path, hint=SAVE_AGAIN) from error


def _completed(result: Structure, access: Access, attrs: Attributes | None) -> Structure | AggarrayError:
    """Add given attributes, and coordinates of other files.

    Returns the error of an unusable one.
    """
    if attrs and find_convention(result) is None:
        from aggarray.opening.catalogue import with_given

        result = with_given(result, attrs)
    if not result.has_external_coordinates and not result.external_files:
        return result
    from aggarray.read.open_files import with_external_coordinates

    try:
        return with_external_coordinates(result, access)
    except AggarrayError as error:
        return error


def foreign_arrays(structure: Structure, kind: Convention, how: Opening) -> list[MasterArray]:
    """Return the arrays of a foreign index, or raise IndexFileError."""
    from aggarray.index.conventions.foreign import array_of_matrix
    from aggarray.index.foreign import read_foreign

    foreign = read_foreign(structure, kind, how)
    arrays, _ = arrays_of(foreign.structure, how.access, rows=False)

    def placed(array: MasterArray) -> MasterArray:
        matrix = foreign.matrices.get(array.name or "")
        return array if matrix is None else array_of_matrix(array, matrix)

    return [replace(placed(a), coords={name: placed(c) for name, c in a.coords.items()}) for a in arrays]


def arrays_in(sources: Sources, provenance: Provenance, repeats: Sequence[Duplicate] = ()) -> tuple[list[Entry], list[Skipped]]:
    """Return the arrays to join, without ``repeats``, and unusable items."""
    skipped, structures, access = list(sources.skipped), sources.structures, provenance.access
    if provenance.fixes:
        from aggarray.opening.fixing import repaired_structures

        structures = repaired_structures(structures, provenance.fixes, access)
    entries = [Entry(array, number) for number, array in enumerate(sources.others)]
    if len(structures) == 1 and sources.tables is None and not repeats:
        (structure,) = structures
        arrays, odd = arrays_of(structure, access)
        if structure.external_files:
            from aggarray.opening.virtual import with_sources

            arrays, lost = with_sources(arrays, structure, access)
            odd = [*odd, *lost]
        skipped += [Skipped(structure.uri, variable, reason) for variable, reason in odd]
        entries += [Entry(array, number) for number, array in enumerate(arrays, len(entries))]
    elif structures:
        from aggarray.opening.entries import FileArrays

        out = {(d.array, d.file) for d in repeats}
        entries += FileArrays(structures, access, out, sources.tables, len(entries)).entries(provenance.rules, skipped)
    return entries, sorted(dict.fromkeys(skipped), key=lambda s: s.file)


def tables_of(arrays: Iterable[MasterArray]) -> ChunkIndexes | None:
    """Return the joined chunk indexes of arrays, None if they carry none."""
    from aggarray.partition.stored_sizes import join_chunk_indexes

    return functools.reduce(join_chunk_indexes, (a._matrix.references.tables for a in arrays), None)


def join_arrays(
    entries: Sequence[Entry], skipped: Sequence[Skipped], provenance: Provenance, repeats: Sequence[Duplicate] = ()
) -> Outcome:
    """Join arrays by the rules; ``repeats``: duplicates left out before."""
    names, access = provenance.variables, provenance.access

    def reachable(a: MasterArray) -> MasterArray:
        if a._access is access or a._access == access:
            return a
        return replace(a, _access=access, coords={n: replace(c, _access=access) for n, c in a.coords.items()})

    rules, refused = provenance.rules, list[Refusal]()
    if rules.forecast_cubes:
        from aggarray.aggregate.forecast_cubes import as_forecasts, join_rules, with_valid_time

        with access.reach():
            entries, refused = as_forecasts([e._replace(array=reachable(e.array)) for e in entries], rules)
        refused = [r for r in refused if names is None or r.arrays[0] in names]
        rules = join_rules(rules)
    accessed = [e._replace(array=reachable(e.array)) for e in entries if names is None or e.array.name in names]
    joined = aggregate(accessed, rules)
    if rules.forecast_cubes:
        joined = replace(joined, arrays=list(map(with_valid_time, joined.arrays)), refusals=[*joined.refusals, *refused])
    # A file kept before may duplicate an earlier file that was added since.
    kept = {(d.array, d.file): d.kept for d in joined.duplicates}
    known = [replace(d, kept=kept.get((d.array, d.kept), d.kept)) for d in repeats]
    selected = tuple(a for a in joined.arrays if all(s.fits(a) for s in provenance.selections))
    outcome = Outcome(selected, Listing(joined.refusals), Listing(skipped), Listing([*known, *joined.duplicates]))
    if all(isinstance(s, Selection) for s in provenance.selections):
        return outcome
    from aggarray.opening.where import restricted

    return restricted(outcome, selected)
