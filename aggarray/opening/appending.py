"""Extension of an aggregation by the new and changed files of a source."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aggarray.errors import AggregationError, MissingFileError
from aggarray.index import Opening
from aggarray.index.uris import NOWHERE, check_roots, near
from aggarray.opening.joining import Sources, arrays_in, join_arrays, scan_sources, tables_of
from aggarray.opening.provenance import Outcome, Provenance
from aggarray.partition.file_names import paths_among
from aggarray.partition.stored_sizes import join_chunk_indexes
from aggarray.scan.discovery import find_files
from aggarray.scan.files import scanning_on
from aggarray.scan.progress import Progress, checked_progress
from aggarray.storage.files import Source, given_path, listed, named_files, stat_file, state_path
from aggarray.storage.state import Stamp
from aggarray.storage.urls import unsigned


def extended(
    present: Outcome, before: Provenance, source: Source, progress: bool | Progress | None, executor: Any = None
) -> tuple[Outcome, Provenance]:
    """Return an aggregation extended by a source; see `Aggregation.append`."""
    items = listed(source)
    before = before.reaching(near(list(map(given_path, items)), NOWHERE))
    scan = None, checked_progress(progress)
    with before.access.reach(), scanning_on(executor):
        structures, others = before.sources(present.arrays)
        # A file that is signed anew is the same file.
        known = {unsigned(s.uri): s for s in structures}
        name: Callable[[str], str] = unsigned if len(known) == len(structures) else str
        known = known if name is unsigned else {s.uri: s for s in structures}
        named = find_files(items)
        if before.access.roots is not None:
            check_roots(named, before.access.roots)
        there = paths_among((a._matrix.references for a in others), named)
        paths = [p for p in named if (has_changed(p, known[name(p)].stamp) if name(p) in known else p not in there)]
        new = scan_sources(paths, named_files(items), before.rules, Opening(before.access), scan)
        if any(fixes not in ((), before.fixes) for fixes in new.fixes):
            hint = "open both with the same fixes=[...]"
            raise AggregationError("an index to append has fixes, which this aggregation lacks", hint=hint)
        gone = [error for error in new.errors if isinstance(error, MissingFileError)]
        if gone and len(gone) == len(paths):
            raise gone[0]
        scanned = {uri if (uri := name(s.uri)) in known else s.uri: s for s in new.structures}
        fresh = {uri: s for uri, s in scanned.items() if uri not in known or s.stamp != known[uri].stamp}
        anew = {*map(name, paths), *fresh}
        kept = {uri: fresh.pop(uri, s) for uri, s in known.items() if uri not in anew or uri in fresh}
        structures, others = [*kept.values(), *fresh.values()], [*others, *new.others]
        skipped = [s for s in present.skipped if s.variable is None and name(s.file) not in anew]
        repeats = [d for d in present.duplicates if name(d.file) not in anew and name(d.kept) not in anew]
        after = replace(before, structures=lambda: structures, others=lambda: others, saved=dict(before.saved))
        tables = join_chunk_indexes(tables_of(present.arrays), new.tables)
        sources = Sources(structures, others, [*skipped, *new.skipped], tables=tables)
        return join_arrays(*arrays_in(sources, after, repeats), after, repeats), after


def has_changed(path: str, stamp: Stamp | None) -> bool:
    """Return whether a file has changed or cannot be accessed."""
    try:
        status = stat_file(state_path(path))
    except OSError:
        return True
    # promise: append-rescans-changed
    return stamp is None or (status.size, status.mtime_ns) != stamp[:2]
