"""Opening of files, folders, patterns and indexes as an aggregation."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.aggregate.rules import DEFAULT_RULES, Duplicate, Refusal, Rules, Skipped
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import replace
from aggarray.errors import LIBRARY_ERRORS, AggregationError, IndexFileError, NotFoundError
from aggarray.garbage import lasting_objects
from aggarray.index import Opening
from aggarray.index.recognition import stored_generation
from aggarray.index.uris import check_roots, checked_roots, near, path_map, real_path
from aggarray.opening.aggregation import Aggregation
from aggarray.opening.provenance import IndexContents, Listing, Outcome, Provenance, Selection
from aggarray.storage.access import NO_OPTIONS, Access
from aggarray.storage.byte_source import open_once
from aggarray.storage.credentials import StorageOptions
from aggarray.storage.files import Source, given_path, listed, named_files

if TYPE_CHECKING:
    from aggarray.opening.catalogue import Given, Row
    from aggarray.opening.where import TextSelection
    from aggarray.scan.fixes import Fix
    from aggarray.scan.progress import Progress

#: Whether this process has opened a file.
_has_opened = False


def open(
    source: Source,
    *,
    rules: Rules = DEFAULT_RULES,
    variables: Sequence[str] | None = None,
    progress: bool | Progress | None = None,
    processes: int | None = None,
    executor: Any = None,
    missing: str = "raise",
    roots: Sequence[str | os.PathLike[str]] | None = None,
    relocate: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fixes: Any = (),
) -> Aggregation:
    """Open files: an array per variable and dataset, joined along dimensions.

    ``source``: a path, a glob (``**`` allowed), a folder, a list of these, or a saved index, recognised by its content; or a
    catalogue: rows ``(address, {attribute: value})`` or ``{"path": ...}``, or tables, with attributes of the files. ``rules``:
    see `Rules`; an index keeps its own unless others are given. ``variables``: names to keep. ``progress``: True for a bar on
    standard error, or a callable (done, total, what). ``processes``: number of processes that scan, chosen automatically if
    None. ``executor``: scans the files instead: any object with ``submit``, such as a ProcessPoolExecutor or a client of dask,
    except the one that runs this call. ``missing``: "raise" or "fill" where a file is missing. ``roots``: the only folders and
    URL prefixes that may be read, links resolved. Without roots a local index may name any local file, and any index remote
    files of its own host or bucket. ``relocate``: {old prefix: new prefix} for the file names in an index. ``storage_options``:
    of fsspec for remote files, or {protocol: options}; pickled with arrays, never saved or displayed. Each process looks up
    ``{"env": NAME}`` and what the function named by ``provider`` returns. ``fixes``: a `Fix`, a TOML file, known faults such as
    "cmip6", or a list of these, applied to what is scanned; an index keeps its own unless others are given.

    Unusable files are listed in `skipped`. Raises the first error if no file can be read, AggregationError for invalid
    arguments, NotFoundError for absent ``variables``, MissingFileError without files, IndexFileError for invalid indexes.
    """
    _check_arguments(rules, variables, processes, executor, missing)
    (items, rows), moved, checked = _items(source), path_map(relocate), _collected(fixes)
    reach = checked_roots(roots), near(list(map(given_path, items)), moved)
    access = Access(missing, *reach, NO_OPTIONS if storage_options is None else StorageOptions(storage_options))
    request = rules, variables if variables is None else list(variables), checked
    with access.naming(map(given_path, items)).reach(), nullcontext() if executor is None else _scanning_on(executor):
        named = named_files(items)
        with _only(named[0]) if len(items) == len(named) == 1 else nullcontext():
            return _opened((items, named, rows), Opening(access, moved), request, (processes, _checked(progress)))


@contextmanager
def _only(path: str) -> Iterator[None]:
    """Open the only file of a source once, to recognise, identify and scan it."""
    global _has_opened
    first, _has_opened = not _has_opened, True
    with lasting_objects() if first else nullcontext(), open_once(path):  # the first call imports modules
        yield


def _items(source: Source) -> tuple[list[Any], list[Row]]:
    """Return the paths of a source, and the rows of a catalogue."""
    items = source if isinstance(source, list | tuple) else [source]
    if all(isinstance(item, str | bytes | os.PathLike) for item in items):
        return listed(source), []
    from aggarray.opening.catalogue import source_items

    return source_items(source)


def _given(rows: Sequence[Row], paths: Sequence[str]) -> Given:
    """Return the attributes that rows of a catalogue give to files."""
    if not rows:
        return {}
    from aggarray.opening.catalogue import given_attributes

    return given_attributes(rows, paths)


def _scanning_on(executor: Any) -> AbstractContextManager[None]:
    from aggarray.scan.files import scanning_on

    return scanning_on(executor)


def _opened(
    source: tuple[Sequence[Any], Sequence[str], Sequence[Row]],
    how: Opening,
    request: tuple[Rules, Sequence[str] | None, tuple[Fix, ...] | None],
    scan: tuple[int | None, Progress | None],
) -> Aggregation:
    """Open a source: items, the files among them, rows of a catalogue.

    ``request``: rules, variables, fixes; ``scan``: see `scan_sources`.
    """
    (items, named, rows), (rules, variables, fixes) = source, request
    # Individually named files may be indexes, which may lie outside the roots.
    naming = replace(how, access=how.access.naming(named))
    if len(items) == len(named) == 1 and not rows and stored_generation(named[0]) is not None:
        return _restored(named[0], naming, *request)
    from aggarray.opening.joining import arrays_in, join_arrays, scan_sources
    from aggarray.scan.discovery import find_files

    paths, roots = find_files(items), how.access.roots
    if roots is not None:
        check_roots([p for p in paths if p not in named], roots)
    sources = scan_sources(paths, named, rules, naming, scan, _given(rows, paths))
    if roots is not None:
        from aggarray.scan.structure_table import stamped

        check_roots([uri for uri, _ in stamped(sources.structures)], roots)
    if len(sources.errors) == len(paths):
        raise sources.errors[0]
    names = None if variables is None else tuple(variables)
    structures, others = lambda: sources.structures, lambda: sources.others
    fixes = sources.common_fixes() if fixes == () else fixes or ()
    provenance = Provenance(rules, names, (), how.access, structures, others, sources.saved, fixes=fixes)
    entries, skipped = arrays_in(sources, provenance)
    arrays = [entry.array for entry in entries]
    _check_variables(paths, arrays, variables)
    if sources.others and not sources.structures and len(paths) == 1 and rules is DEFAULT_RULES:
        # Aggregations of other software are not joined again.
        return Aggregation(tuple(a for a in arrays if names is None or a.name in names), (), Listing(skipped), (), provenance)
    return Aggregation(*join_arrays(entries, skipped, provenance), provenance)


def _restored(
    path: str, how: Opening, rules: Rules, variables: Sequence[str] | None, fixes: tuple[Fix, ...] | None = ()
) -> Aggregation:
    """Open an index of aggarray; join again by other rules or fixes."""
    outcome, provenance = restore(path, how)
    rules = provenance.rules if rules is DEFAULT_RULES else rules
    fixes = provenance.fixes if fixes == () else fixes or ()
    if (rules, fixes) != (provenance.rules, provenance.fixes):
        from aggarray.opening.joining import Sources, arrays_in, join_arrays, tables_of

        lost = [s for s in outcome.skipped if s.variable is None]
        sources = Sources(*provenance.sources(outcome.arrays), lost, tables=tables_of(outcome.arrays))
        provenance = replace(provenance, rules=rules, fixes=fixes)
        outcome = join_arrays(*arrays_in(sources, provenance), provenance)
    made = Aggregation(*outcome, provenance)
    if variables is None:
        return made
    _check_variables([path], made.arrays, variables)
    selection = Selection(tuple(variables))
    kept = tuple(a for a in made.arrays if selection.fits(a))
    return replace(made, arrays=kept, _provenance=provenance.selected(selection))


def restore(path: str, how: Opening) -> tuple[Outcome, Provenance]:
    """Open an index of aggarray; raise IndexFileError if it is not valid."""
    from aggarray.index.decoder import unplain
    from aggarray.index.loading import load
    from aggarray.index.pickling import array_of_index, others_of_index, structures_of_index

    loaded = load(path, how)
    details, files = loaded.details, loaded.files
    fixes = () if "fixes" not in details else _stored_fixes(details, path, how)
    try:
        rules = Rules(**{name: unplain(value) for name, value in details["rules"].items()})
        result = Outcome(
            tuple(a._with_origin(array_of_index, path, loaded.generation, n, how) for n, a in enumerate(loaded.arrays)),
            Listing(
                Refusal(tuple(names), tuple(files[i] for i in where), rule, reason)
                for names, where, rule, reason in details["refusals"]
            ),
            Listing(Skipped(files[i], variable, reason) for i, variable, reason in details["skipped"]),
            Listing(Duplicate(name, files[i], files[k]) for name, i, k in details["duplicates"]),
        )
        variables = None if details["variables"] is None else tuple(map(str, details["variables"]))
        selections = tuple(_selections(details))
        kept_as = {"convention": str(details["how"]["convention"]), "relative": bool(details["how"]["relative"])}
        kept_as["chunk_table"] = bool(details["how"].get("chunk_table", True))  # absent in indexes of earlier releases
    except (*LIBRARY_ERRORS, RecursionError) as error:
        what = f"a damaged index ({' '.join(repr(error).split()):.200})"
        raise IndexFileError(what, path=path, hint="save it again from the data files") from error
    saved = {real_path(path): loaded.generation}
    place = path, loaded.generation, how
    structures = IndexContents(loaded.structures, (structures_of_index, place), None if loaded.has_others else loaded.records)
    others = IndexContents(loaded.others, (others_of_index, place))
    rules_and_selections = rules, variables, selections, how.access
    return result, Provenance(*rules_and_selections, structures, others, saved=saved, how=kept_as, fixes=fixes)


def _selections(details: Mapping[str, Any]) -> Iterator[Selection | TextSelection]:
    """Yield the selections of an index; earlier releases have none by text."""
    from aggarray.index.decoder import unplain

    for names, attrs in details["selections"]:
        yield Selection(None if names is None else tuple(map(str, names)), unplain(attrs))
    for patterns in details.get("where", ()):
        from aggarray.opening.where import TextSelection

        yield TextSelection({str(name): list(map(str, texts)) for name, texts in patterns.items()})


def _stored_fixes(details: Mapping[str, Any], path: str, how: Opening) -> tuple[Fix, ...]:
    from aggarray.opening.joining import fixes_of

    return fixes_of(details, path, how)


def _collected(fixes: Any) -> tuple[Fix, ...] | None:
    if fixes is None or (isinstance(fixes, tuple) and not fixes):
        return fixes
    from aggarray.scan.fix_files import collect_fixes

    return collect_fixes(fixes)


def _checked(progress: bool | Progress | None) -> Progress | None:
    if progress is None:
        return None
    from aggarray.scan.progress import checked_progress

    return checked_progress(progress)


def _check_arguments(rules: Any, variables: Any, processes: Any, executor: Any, missing: str) -> None:
    if not isinstance(rules, Rules):
        raise AggregationError(f"rules={rules!r} is invalid", hint="give aggarray.Rules(...)")
    if isinstance(variables, str):
        raise AggregationError(f"variables={variables!r} is invalid", hint="give a list of names")
    if missing not in ("raise", "fill"):
        raise AggregationError(f"missing={missing!r} is invalid", hint="give 'raise' or 'fill'")
    if processes is not None and (isinstance(processes, bool) or not isinstance(processes, int | np.integer) or processes < 1):
        raise AggregationError(f"processes={processes!r} is invalid", hint="give an integer of at least 1")
    if processes is not None and executor is not None:
        raise AggregationError("processes= and executor= are both given", hint="give one: the executor has its own workers")


def _check_variables(paths: Sequence[str], arrays: Sequence[MasterArray], variables: Sequence[str] | None) -> None:
    absent = [v for v in variables or () if v not in {a.name for a in arrays}]
    if absent:
        names = sorted({a.name or "" for a in arrays})
        path, files = (paths[0], "") if len(paths) == 1 else (None, f" in {len(paths)} files")
        hint = f"the variables are: {', '.join(names) or 'none'}"
        raise NotFoundError(f"no data variable {', '.join(map(repr, absent))}{files}", path=path, variable=absent[0], hint=hint)
