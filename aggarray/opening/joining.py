"""Joining of scanned files, for opening, appending and other rules."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from aggarray.aggregate.rules import Duplicate, Rules, Skipped
from aggarray.aggregate.stages import aggregate
from aggarray.aggregate.variables import arrays_of
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import dataclass
from aggarray.errors import AggarrayError
from aggarray.formats.base import Structure
from aggarray.index import Opening
from aggarray.index.recognition import OURS, find_convention
from aggarray.index.uris import real_path
from aggarray.opening.provenance import Listing, Outcome, Provenance, Selection
from aggarray.scan.files import scan_files
from aggarray.storage.access import Access

if TYPE_CHECKING:
    from aggarray.index.conventions.foreign import Convention
    from aggarray.partition.stored_sizes import ChunkIndexes
    from aggarray.scan.progress import Progress

_ELSEWHERE = "an index of files, not data: open it by itself, or name it in a list to join what it holds"


@dataclass(slots=True)
class Sources:
    """Contents of a source: structures, arrays, skipped files, generations.

    ``tables``: chunk indexes of the files, from the indexes that store them; ``errors``: of the files that cannot be read.
    """

    structures: list[Structure] = field(default_factory=list)
    others: list[MasterArray] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    saved: dict[str, int] = field(default_factory=dict)
    tables: "ChunkIndexes | None" = None
    errors: list[AggarrayError] = field(default_factory=list)


def scan_sources(
    paths: Sequence[str], named: Iterable[str], rules: Rules, how: Opening, scan: "tuple[int | None, Progress | None]"
) -> Sources:
    """Scan files; separate data files, indexes and unusable files.

    ``scan``: number of processes, progress callable. ``named``: paths that the source names individually; indexes found in
    a folder are skipped.
    """
    if rules.trust == "verify":
        scanned = scan_files(paths, *scan)
    else:
        from aggarray.scan.file_groups import scan_trusting

        scanned = scan_trusting(paths, rules.identifying, lambda structure: find_convention(structure) is None, *scan)
    sources, named, indexed = Sources(), set(named), list[Structure]()
    for path, result in scanned:
        structure = _with_external_coordinates(result, how.access)
        if isinstance(structure, AggarrayError):
            from aggarray.scan.discovery import skipped_file

            sources.errors.append(structure)
            sources.skipped.append(Skipped(path, None, skipped_file(path, structure)))
            continue
        kind = find_convention(structure)
        if kind is None:
            sources.structures.append(structure)
        elif path not in named:
            sources.skipped.append(Skipped(path, kind.name, _ELSEWHERE))
        elif kind is OURS:
            indexed += _add_index(path, how, sources)
        else:
            sources.others += foreign_arrays(structure, kind, how)
    doubles = {s.uri for s in sources.structures if s.has_external_coordinates and s.uri not in named}
    if len(doubles) < len(sources.structures):
        # Reference files next to their data would contribute the same arrays twice.
        sources.structures = [s for s in sources.structures if s.uri not in doubles]
        sources.skipped += [Skipped(uri, None, _ELSEWHERE) for uri in doubles]
    # A file known from several places counts once: as just scanned, otherwise as in the last index.
    sources.structures = list({s.uri: s for s in [*indexed, *sources.structures]}.values())
    return sources


def _add_index(path: str, how: Opening, sources: Sources) -> list[Structure]:
    """Add what an index of aggarray holds; return the structures of its files."""
    from aggarray.index.loading import load
    from aggarray.partition.stored_sizes import join_chunk_indexes

    loaded = load(path, how)
    sources.saved[real_path(path)] = loaded.generation
    sources.tables = join_chunk_indexes(sources.tables, tables_of(loaded.arrays))
    sources.others += loaded.others()
    return loaded.structures()


def _with_external_coordinates(result: Structure | AggarrayError, access: Access) -> Structure | AggarrayError:
    """Add coordinates of other files; return the error of an unusable one."""
    if isinstance(result, AggarrayError) or not (result.has_external_coordinates or result.external_files):
        return result
    from aggarray.read.open_files import with_external_coordinates

    try:
        return with_external_coordinates(result, access)
    except AggarrayError as error:
        return error


def foreign_arrays(structure: Structure, kind: "Convention", how: Opening) -> list[MasterArray]:
    """Return the arrays of a foreign index, or raise IndexFileError."""
    from aggarray.index.conventions.foreign import array_of_matrix
    from aggarray.index.foreign import read_foreign

    foreign = read_foreign(structure, kind, how)
    arrays, _ = arrays_of(foreign.structure, how.access, rows=False)

    def placed(array: MasterArray) -> MasterArray:
        matrix = foreign.matrices.get(array.name or "")
        return array if matrix is None else array_of_matrix(array, matrix)

    return [replace(placed(a), coords={name: placed(c) for name, c in a.coords.items()}) for a in arrays]


def arrays_in(sources: Sources, access: Access, repeats: Sequence[Duplicate] = ()) -> tuple[list[MasterArray], list[Skipped]]:
    """Return the arrays of each file, without ``repeats``, and unusable items."""
    out = {(d.array, d.file) for d in repeats}
    arrays, skipped = list(sources.others), list(sources.skipped)

    def with_tables(a: MasterArray) -> MasterArray:
        return replace(a, _matrix=replace(a._matrix, references=replace(a._matrix.references, tables=sources.tables)))

    for structure in sources.structures:
        made, odd = arrays_of(structure, access)
        skipped += [Skipped(structure.uri, variable, reason) for variable, reason in odd]
        made = [a for a in made if (a.name or "", structure.uri) not in out] if out else made
        if sources.tables is not None:
            made = [replace(with_tables(a), coords={name: with_tables(c) for name, c in a.coords.items()}) for a in made]
        arrays += made
    return arrays, sorted(dict.fromkeys(skipped), key=lambda s: s.file)


def tables_of(arrays: Iterable[MasterArray]) -> "ChunkIndexes | None":
    """Return the joined chunk indexes of arrays, None if they carry none."""
    from aggarray.partition.stored_sizes import join_chunk_indexes

    return functools.reduce(join_chunk_indexes, (a._matrix.references.tables for a in arrays), None)


def join_arrays(
    arrays: Sequence[MasterArray], skipped: Sequence[Skipped], provenance: Provenance, repeats: Sequence[Duplicate] = ()
) -> Outcome:
    """Join arrays by the rules; ``repeats``: duplicates left out before."""
    names, access = provenance.variables, provenance.access
    accessed = [
        a
        if a._access is access or a._access == access
        else replace(a, _access=access, coords={n: replace(c, _access=access) for n, c in a.coords.items()})
        for a in arrays
        if names is None or a.name in names
    ]
    joined = aggregate(accessed, provenance.rules)
    # A file kept before may duplicate an earlier file that was added since.
    kept = {(d.array, d.file): d.kept for d in joined.duplicates}
    known = [replace(d, kept=kept.get((d.array, d.kept), d.kept)) for d in repeats]
    selected = tuple(a for a in joined.arrays if all(s.fits(a) for s in provenance.selections))
    outcome = Outcome(selected, Listing(joined.refusals), Listing(skipped), Listing([*known, *joined.duplicates]))
    if all(isinstance(s, Selection) for s in provenance.selections):
        return outcome
    from aggarray.opening.where import restricted

    return restricted(outcome, selected)
