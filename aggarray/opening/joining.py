"""Joining of scanned files into arrays, shared by opening, appending and joining by other rules."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aggarray import index
from aggarray.aggregate import Joined, aggregate
from aggarray.aggregate.report import Duplicate
from aggarray.aggregate.rules import Skipped
from aggarray.aggregate.variables import arrays_of
from aggarray.arrays import MasterArray
from aggarray.errors import AggarrayError
from aggarray.formats.base import Structure
from aggarray.index.conventions.foreign import Convention, array_of_matrix
from aggarray.index.uris import real_path
from aggarray.opening.provenance import Provenance
from aggarray.partition.stored_sizes import ChunkIndexes, join_chunk_indexes
from aggarray.read.open_files import with_external_coordinates
from aggarray.scan.discovery import Scanned, skipped_file
from aggarray.storage.access import Access

_ELSEWHERE = "an index of files, not data: open it by itself, or name it in a list to join what it holds"


@dataclass(slots=True)
class ScannedSources:
    """Contents of a source: structures of data files, arrays of indexes, skipped files, generations of indexes.

    ``tables``: chunk indexes of the files, from the indexes that store them.
    """

    structures: list[Structure] = field(default_factory=list)
    others: list[MasterArray] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    saved: dict[str, int] = field(default_factory=dict)
    tables: ChunkIndexes | None = None


def resolve_arrays(scanned: Iterable[Scanned], access: Access) -> list[Scanned]:
    """Add coordinates stored in other files; a forbidden or missing file yields its error."""
    found: list[Scanned] = []
    for path, result in scanned:
        try:
            found.append((path, with_external_coordinates(result, access) if isinstance(result, Structure) else result))
        except AggarrayError as error:
            found.append((path, error))
    return found


def classify_structures(
    scanned: Iterable[tuple[str, Structure | AggarrayError]], named: Iterable[str], how: index.Opening
) -> ScannedSources:
    """Separate scanned files into data files, indexes and unusable files.

    ``named``: paths that the source names individually; indexes found in a folder are skipped.
    """
    found, named, indexed = ScannedSources(), set(named), list[Structure]()
    for path, result in scanned:
        if isinstance(result, AggarrayError):
            found.skipped.append(Skipped(path, None, skipped_file(path, result)))
            continue
        kind = index.find_convention(result)
        if kind is None:
            found.structures.append(result)
        elif path not in named:
            found.skipped.append(Skipped(path, kind.name, _ELSEWHERE))
        elif kind is index.OURS:
            loaded = index.load(path, how)
            found.saved[real_path(path)] = loaded.generation
            found.tables = join_chunk_indexes(found.tables, tables_of(loaded.arrays))
            indexed += loaded.structures()
            found.others += loaded.others()
        else:
            found.others += foreign_arrays(result, kind, how)
    doubles = [s for s in found.structures if s.has_external_coordinates and s.uri not in named]
    if len(doubles) < len(found.structures):
        # Reference files next to their data would contribute the same arrays twice.
        found.structures = [s for s in found.structures if not (s.has_external_coordinates and s.uri not in named)]
        found.skipped += [Skipped(s.uri, None, _ELSEWHERE) for s in doubles]
    # A file known from several places counts once: as just scanned, otherwise as in the last index.
    found.structures = list({s.uri: s for s in [*indexed, *found.structures]}.values())
    return found


def foreign_arrays(structure: Structure, kind: Convention, how: index.Opening) -> list[MasterArray]:
    """Return the arrays of an index written by other software, with coordinates. Raises IndexFileError for an invalid index."""
    foreign = index.read_foreign(structure, kind, how)
    arrays, _ = arrays_of(foreign.structure, rows=False)

    def placed(array: MasterArray) -> MasterArray:
        matrix = foreign.matrices.get(array.name or "")
        return replace(array if matrix is None else array_of_matrix(array, matrix), _access=how.access)

    return [replace(placed(a), coords={name: placed(c) for name, c in a.coords.items()}) for a in arrays]


def arrays_in(found: ScannedSources, repeats: Sequence[Duplicate] = ()) -> tuple[list[MasterArray], list[Skipped]]:
    """Return the arrays of each file, and everything that cannot be used.

    ``repeats``: arrays of files known to be duplicates, which stay left out. The arrays store the state of their files, so that
    reads detect changes.
    """
    out = {(d.array, d.file) for d in repeats}
    arrays, skipped = list(found.others), list(found.skipped)
    for structure in found.structures:
        made, odd = arrays_of(structure)
        skipped += [Skipped(structure.uri, variable, reason) for variable, reason in odd]
        made = [a for a in made if (a.name or "", structure.uri) not in out] if out else made
        arrays += made if found.tables is None else [_with_tables(a, found.tables) for a in made]
    return arrays, sorted(dict.fromkeys(skipped), key=lambda s: s.file)


def tables_of(arrays: Iterable[MasterArray]) -> ChunkIndexes | None:
    """Return the joined chunk indexes that arrays carry; None if they carry none."""
    return functools.reduce(join_chunk_indexes, (a._matrix.references.tables for a in arrays), None)


def _with_tables(array: MasterArray, tables: ChunkIndexes) -> MasterArray:
    """Attach chunk indexes to an array of one file and to its coordinates."""

    def noted(a: MasterArray) -> MasterArray:
        return replace(a, _matrix=replace(a._matrix, references=replace(a._matrix.references, tables=tables)))

    return replace(noted(array), coords={name: noted(c) for name, c in array.coords.items()})


def join_all(arrays: Sequence[MasterArray], provenance: Provenance, repeats: Sequence[Duplicate] = ()) -> Joined:
    """Join the requested arrays by the rules; ``repeats``: duplicates left out before, listed again in the result."""
    if provenance.variables is not None:
        arrays = [a for a in arrays if a.name in provenance.variables]
    joined = aggregate([_accessed(a, provenance) for a in arrays], provenance.rules)
    # A file kept before may duplicate an earlier file that was added since.
    kept = {(d.array, d.file): d.kept for d in joined.duplicates}
    known = [replace(d, kept=kept.get((d.array, d.kept), d.kept)) for d in repeats]
    return replace(joined, duplicates=[*known, *joined.duplicates])


def _accessed(array: MasterArray, provenance: Provenance) -> MasterArray:
    """Set the access of an array and its coordinates to that of the provenance."""
    access: Any = provenance.access
    if array._access is access or array._access == access:
        return array
    return replace(array, _access=access, coords={n: replace(c, _access=access) for n, c in array.coords.items()})
