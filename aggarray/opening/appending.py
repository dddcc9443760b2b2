"""Extension of an aggregation by the new and changed files of a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aggarray.dataclass import replace
from aggarray.errors import AggregationError, MissingFileError
from aggarray.index import Opening
from aggarray.index.uris import NOWHERE, check_roots, near
from aggarray.opening.catalogue import Given, given_attributes, is_given_anew, kept_attributes, source_items
from aggarray.opening.continuation import continued, is_continuable
from aggarray.opening.joining import Sources, arrays_in, join_arrays, scan_sources, tables_of
from aggarray.opening.provenance import Outcome, Provenance
from aggarray.partition.file_names import paths_among
from aggarray.partition.stored_sizes import join_chunk_indexes
from aggarray.scan.discovery import find_files
from aggarray.scan.files import scanning_on
from aggarray.scan.progress import Progress, checked_progress
from aggarray.storage.files import Source, given_path, named_files, stat_file, state_path
from aggarray.storage.state import Stamp
from aggarray.storage.urls import unsigned


def extended(
    present: Outcome, before: Provenance, source: Source, progress: bool | Progress | None, executor: Any = None
) -> tuple[Outcome, Provenance]:
    """Return an aggregation extended by a source; see `Aggregation.append`."""
    items, rows = source_items(source)
    before = before.reaching(near(list(map(given_path, items)), NOWHERE))
    scan = None, checked_progress(progress)
    with before.access.reach(), scanning_on(executor):
        named = find_files(items)
        if before.access.roots is not None:
            check_roots(named, before.access.roots)
        given = dict(given_attributes(rows, named)) if rows else {}

        def scanned(paths: Sequence[str], given: Given) -> Sources:
            new = scan_sources(paths, named_files(items), before.rules, Opening(before.access), scan, given)
            if any(fixes not in ((), before.fixes) for fixes in new.fixes):
                hint = "open both with the same fixes=[...]"
                raise AggregationError("an index to append has fixes, which this aggregation lacks", hint=hint)
            gone = [error for error in new.errors if isinstance(error, MissingFileError)]
            if gone and len(gone) == len(paths):
                raise gone[0]
            return new

        new = None
        if (records := before.records()) is not None and is_continuable(present, before):
            known = records.stamps_of(named)
            # The files of an index that are signed anew are compared without signatures.
            if not any("?" in path or has_changed(path, known[path]) or path in given for path in known):
                paths = [path for path in named if path not in known]
                if not any("?" in path for path in paths):
                    new = scanned(paths, given)
                    if not new.others and not new.saved:
                        skipped = [s for s in present.skipped if s.file not in set(paths)]
                        outcome = continued(present, before, new, skipped)
                        if outcome is not None:
                            structures = records.extended(new.structures)
                            # Records are those of an index without other arrays.
                            return outcome, replace(before, structures=structures, others=tuple, saved=dict(before.saved))
        return _joined_again(present, before, named, given, scanned if new is None else lambda paths, given: new)


def _joined_again(
    present: Outcome, before: Provenance, named: Sequence[str], given: Given, scanned: Callable[[Sequence[str], Given], Sources]
) -> tuple[Outcome, Provenance]:
    """Join the files of an aggregation with those of a source."""
    structures, others = before.sources(present.arrays)
    # A file that is signed anew is the same file.
    known = {unsigned(uri): row for row, uri in enumerate(structures.uris)}
    name: Callable[[str], str] = unsigned if len(known) == len(structures) else str
    known = known if name is unsigned else {uri: row for row, uri in enumerate(structures.uris)}
    there = paths_among((a._matrix.references for a in others), named)

    def is_new(path: str) -> bool:
        if (row := known.get(name(path))) is None:
            return path not in there
        return has_changed(path, structures.stamp(row)) or (path in given and is_given_anew(structures[row], given[path]))

    paths = list(filter(is_new, named))
    # What an earlier catalogue gave to a file that has changed stays.
    kept_given = {p: kept_attributes(structures[known[name(p)]]) for p in paths if name(p) in known and p not in given}
    new, read = scanned(paths, {**given, **kept_given}), set(map(name, paths))
    found = {uri if (uri := name(s.uri)) in known else s.uri: s for s in new.structures}
    fresh = {u: s for u, s in found.items() if u in read or u not in known or s.stamp != structures.stamp(known[u])}
    anew = read | fresh.keys()
    table = structures.extended(fresh.values())
    row_of = {uri: len(structures) + number for number, uri in enumerate(fresh)}
    rows = [row_of.pop(uri, row) for uri, row in known.items() if uri not in anew or uri in row_of]
    table = table.take([*rows, *row_of.values()])
    others = [*others, *new.others]
    skipped = [s for s in present.skipped if s.variable is None and name(s.file) not in anew]
    repeats = [d for d in present.duplicates if name(d.file) not in anew and name(d.kept) not in anew]
    after = replace(before, structures=lambda: table, others=lambda: others, saved=dict(before.saved))
    tables = join_chunk_indexes(tables_of(present.arrays), new.tables)
    sources = Sources(table, others, [*skipped, *new.skipped], tables=tables)
    return join_arrays(*arrays_in(sources, after, repeats), after, repeats), after


def has_changed(path: str, stamp: Stamp | None) -> bool:
    """Return whether a file has changed or cannot be accessed."""
    try:
        status = stat_file(state_path(path))
    except OSError:
        return True
    # promise: append-rescans-changed
    return stamp is None or (status.size, status.mtime_ns) != stamp[:2]
