"""How is an aggregation kept in a file, and found again without touching a data file?

An index is a CF-1.13 aggregation file (`cf113_write`) with the same aggregation, lossless, in a group ``aggarray`` of it
(`store`, `encode`, `records`). Saving writes beside and renames (`atomic`).
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aggarray.arrays import MasterArray
from aggarray.errors import AggarrayError, IndexFileError
from aggarray.formats import open_file, scan, stamp_of
from aggarray.formats.base import Structure, whole
from aggarray.index.chunk_tables import StoredChunkIndexes, pack_chunk_indexes
from aggarray.index.columns import Decoder, Encoder
from aggarray.index.container import Container
from aggarray.index.conventions.cf113_write import CF113
from aggarray.index.conventions.cfa04_write import CFA04
from aggarray.index.conventions.foreign import Convention, ForeignArrays, Values, convention_of
from aggarray.index.generation import replace_index
from aggarray.index.netcdf import created
from aggarray.index.records import pack, unpack
from aggarray.index.store import GROUP, Reader, Writer, stored_generation
from aggarray.index.uris import NOWHERE, Files, PathMap, check_roots, home_of, path_map, real_path, written
from aggarray.partition.matrix import References
from aggarray.read.chunk_index import gather_chunk_indexes
from aggarray.storage.access import ANYWHERE, Access

__all__ = [
    "CONVENTIONS",
    "GROUP",
    "OURS",
    "IndexContents",
    "LoadedIndex",
    "Opening",
    "kind_of",
    "load",
    "may_be_replaced",
    "path_map",
    "read_foreign",
    "save",
    "stored_generation",
]

#: What a saved index may look like to other software.
CONVENTIONS = ("CF-1.13", "CFA-0.4")


class _Ours:
    """The kind of an index that `save` wrote, whatever it looks like to other software."""

    name = GROUP

    def recognises(self, structure: Structure) -> bool:
        """Tell whether a file has our group."""
        return kind_of(structure) is self

    def read(self, structure: Structure, values: Values, moves: PathMap = NOWHERE) -> ForeignArrays:
        """Refuse: `load` reads it."""
        raise IndexFileError(f"{structure.uri}: an index of this library; open it by itself")


OURS = _Ours()


#: So many files that were named by hand, or by another program's index, are looked at when an index is saved.
_FEW_FILES = 10_000


@dataclass(frozen=True, slots=True)
class Opening:
    """How an index is opened: which of its files may be read, and where they are if not where it says."""

    access: Access = ANYWHERE
    path_map: PathMap = NOWHERE


@dataclass(frozen=True, slots=True)
class IndexContents:
    """What an index holds.

    ``arrays``; ``structures``: what the scan found in each file; ``others``: arrays that were joined but no scan gave;
    ``details``: JSON that its owner understands, in which files are numbers into ``files``; ``chunk_table``: whether it is
    noted where the chunks of the files are stored, which are asked where nobody has yet.
    """

    arrays: Sequence[MasterArray]
    structures: Sequence[Structure] = ()
    others: Sequence[MasterArray] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()
    chunk_table: bool = True


@dataclass(frozen=True, slots=True)
class LoadedIndex:
    """An index that was opened; ``structures`` and ``others`` are read when they are called."""

    arrays: tuple[MasterArray, ...]
    details: Mapping[str, Any]
    files: Sequence[str]
    generation: int
    structures: Callable[[], list[Structure]]
    others: Callable[[], list[MasterArray]]


def save(
    path: str, contents: IndexContents, convention: str = "CF-1.13", relative: bool = True, expected: int | None = None
) -> tuple[list[tuple[str, str]], int]:
    """Write an index; ``expected``: the generation that it updates, None to write whatever is there.

    Returns (name, reason) of what the convention cannot express, which lies in our group alone, and the generation written.
    Raises IndexFileError where the index was saved by somebody else since, or cannot be written.
    """
    path, home = os.path.realpath(path), home_of(path)
    encoder = Encoder(Writer())
    arrays = [encoder.array(a) for a in contents.arrays]
    document, records = _documents(contents, encoder)
    files = written(list(encoder.files), home, relative)
    document |= {"arrays": arrays, "files": encoder.writer.texts(files)}
    names = np.array(files, object)

    def references(table: References) -> np.ndarray:
        return np.asarray(names[encoder.file_codes(table)], object)

    with replace_index(path, expected) as (temporary, generation), created(temporary) as dataset:
        if convention == CFA04.name:
            container: Container = CFA04(dataset, references, home if relative else None)
        else:
            container = CF113(dataset, references)
        left_out = container.write_all(contents.arrays)
        encoder.writer.write(dataset, document, records, generation)
    return left_out, generation


def _documents(contents: IndexContents, encoder: Encoder) -> tuple[dict[str, Any], dict[str, Any]]:
    """Lay out everything but the arrays; return the two documents that say where it lies."""
    for structure in contents.structures:
        code = encoder.files.setdefault(structure.uri, len(encoder.files))
        if structure.stamp is not None:
            encoder.stamps[code] = structure.stamp
    others = [encoder.array(a) for a in contents.others]
    named = [encoder.files.setdefault(f, len(encoder.files)) for f in contents.files]
    stamps = np.full((len(encoder.files), 3), -1, np.int64)
    if len(encoder.files) - len(encoder.stamps) <= _FEW_FILES:
        # Files that no scan of ours has seen: what they are like now.
        for uri, code in encoder.files.items():
            if code not in encoder.stamps and "://" not in uri:
                with contextlib.suppress(OSError):
                    encoder.stamps[code] = stamp_of(uri)
    if encoder.stamps:
        stamps[list(encoder.stamps)] = list(encoder.stamps.values())
    document = {
        "others": others,
        "templates": encoder.templates,
        "attributes": encoder.attributes,
        **({"geometries": encoder.geometries} if encoder.geometries else {}),
        "stamps": [encoder.writer.column(c) for c in stamps.T],
        "details": contents.details,
        "named": encoder.writer.column(np.array(named, np.int64)),
    }
    if contents.chunk_table:
        found = gather_chunk_indexes(_tables(contents.arrays))
        document["chunks"] = pack_chunk_indexes(found, encoder.files, encoder.stamps, encoder.writer)
    return document, pack(contents.structures, encoder.files, encoder.writer)


def _tables(arrays: Sequence[MasterArray]) -> Iterator[tuple[References, Access]]:
    """Yield the tables of sub-arrays that reading will open files for: values that the index holds itself need none."""
    for array in arrays:
        if array._known is None:
            yield array._matrix.references, array._access
        yield from _tables(tuple(array.coords.values()))


def load(path: str, how: Opening) -> LoadedIndex:
    """Open an index; no data file is touched. Raises IndexFileError for a damaged one, and for files outside the roots."""
    with how.access.reach():
        return _loaded(path, how)


def _loaded(path: str, how: Opening) -> LoadedIndex:
    path, home = real_path(path), home_of(path)
    reader = Reader(path)
    with reader.opened(), reader.blaming():
        document = reader.document()
        files = Files(reader.texts(document["files"]), home, how.path_map)
        if how.access.roots is not None:
            check_roots(files, how.access.roots, path)
        decoder = Decoder(reader, document, files, how.access)
        if "chunks" in document:  # indexes of old have none
            decoder.tables = StoredChunkIndexes(reader, document["chunks"], files, decoder.stamps)
        arrays = tuple(map(decoder.array, document["arrays"]))
        details, generation = document["details"], reader.generation
        named = [files[i] for i in reader.column(document["named"]).tolist()]
    if generation is None or not isinstance(details, dict):
        raise IndexFileError(f"{path}: a damaged index (no generation); save it anew from the data files")

    def structures() -> list[Structure]:
        later = Reader(path, generation, reader.reach)
        with later.opened(), later.blaming():
            return unpack(later.document("records"), files, later)

    def others() -> list[MasterArray]:
        later = Reader(path, generation, reader.reach)
        with later.opened(), later.blaming():
            return list(map(Decoder(later, document, files, how.access).array, document["others"]))

    return LoadedIndex(arrays, details, named, generation, structures, others)


def kind_of(structure: Structure) -> "Convention | None":
    """Return the convention of a file's structure, `OURS` for an index of ours, None for plain data."""
    return OURS if "schema" in structure.groups.get(GROUP, {}) else convention_of(structure)


def may_be_replaced(path: str) -> bool:
    """Tell whether an index may be saved over what is there: over an index of any kind, and over an empty file."""
    if stored_generation(path) is not None:
        return True
    try:
        if os.path.isfile(path) and os.path.getsize(path) == 0:
            return True
        return os.path.isfile(path) and kind_of(scan(path)) is not None
    except (AggarrayError, FileNotFoundError):
        return False


def read_foreign(structure: Structure, kind: Convention, how: Opening) -> ForeignArrays:
    """Read an index that another program wrote; its fragments are opened when they are first read.

    Raises IndexFileError naming the variable and the value at fault, and for files outside the roots.
    """

    def values(name: str) -> np.ndarray:
        variable = next(v for v in structure.variables if v.name == name)
        handle = open_file(structure.uri)
        try:
            # What the index says may lie in other files, which may be read or not as any.
            for path in getattr(handle, "elsewhere", lambda name: ())(name):
                # promise: foreign-index-roots
                how.access.check_named(path, structure.uri)
            return handle.read(name, whole(variable.shape))
        finally:
            handle.close()

    found = kind.read(structure, values, how.path_map)
    if how.access.roots is not None:
        for matrix in found.matrices.values():
            check_roots(matrix.references.uris, how.access.roots, structure.uri)
    return found
