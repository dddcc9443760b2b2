"""Index files: saved aggregations, opened without reading a data file.

An index is an aggregation file of CF-1.13 or CFA-0.4, with the same aggregation, without loss, in its group ``aggarray``
(`store`, `columns`, `records`). A save replaces the file atomically.
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
from aggarray.formats.base import Structure, full_box
from aggarray.index.chunk_tables import StoredChunkIndexes, pack_chunk_indexes
from aggarray.index.columns import Decoder, Encoder
from aggarray.index.container import Container
from aggarray.index.conventions.cf113_write import CF113
from aggarray.index.conventions.cfa04_write import CFA04
from aggarray.index.conventions.foreign import Convention, ForeignArrays, Values, convention_of
from aggarray.index.directory import append_directory
from aggarray.index.netcdf import created
from aggarray.index.records import pack, unpack
from aggarray.index.store import GROUP, SAVE_AGAIN, Reader, Writer, replace_index
from aggarray.index.store import stored_generation as stored_generation
from aggarray.index.uris import NOWHERE, Files, PathMap, check_roots, home_of, real_path, written
from aggarray.index.uris import path_map as path_map
from aggarray.partition.matrix import References
from aggarray.read.chunk_index import gather_chunk_indexes
from aggarray.storage.access import ANYWHERE, Access

#: The conventions in which other software may read a saved index.
CONVENTIONS = ("CF-1.13", "CFA-0.4")


class _Ours:
    """Indexes that `save` wrote, in any convention."""

    name = GROUP
    marks: Sequence[str] = ()

    def recognises(self, structure: Structure) -> bool:
        return find_convention(structure) is self

    def read(self, structure: Structure, values: Values, path_map: PathMap = NOWHERE) -> ForeignArrays:
        """Raise IndexFileError: `load` reads such a file."""
        raise IndexFileError("is an index of aggarray", path=structure.uri, hint="open it on its own")


OURS = _Ours()

#: Most files without a known state whose state is read when an index is saved.
_FEW_FILES = 10_000


@dataclass(frozen=True, slots=True)
class Opening:
    """Options of opening an index: readable files and relocated prefixes."""

    access: Access = ANYWHERE
    path_map: PathMap = NOWHERE


@dataclass(frozen=True, slots=True)
class IndexContents:
    """Contents of an index.

    ``structures``: the scanned structure of each file; ``others``: joined arrays that no scan returned; ``details``: JSON of
    the caller, in which numbers refer to ``files``; ``chunk_table``: whether the index stores the chunk indexes of the files,
    which are read if they are not known yet.
    """

    arrays: Sequence[MasterArray]
    structures: Sequence[Structure] = ()
    others: Sequence[MasterArray] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()
    chunk_table: bool = True


@dataclass(frozen=True, slots=True)
class LoadedIndex:
    """An opened index; ``structures`` and ``others`` are read lazily."""

    arrays: tuple[MasterArray, ...]
    details: Mapping[str, Any]
    files: Sequence[str]
    generation: int
    structures: Callable[[], list[Structure]]
    others: Callable[[], list[MasterArray]]


def save(
    path: str, contents: IndexContents, convention: str = "CF-1.13", relative: bool = True, expected: int | None = None
) -> tuple[list[tuple[str, str]], int]:
    """Write an index; return the arrays left out, and its generation.

    ``expected``: the generation that is updated, None to overwrite any. What the convention cannot express, as (name, reason),
    is stored in the group of aggarray only. Raises IndexFileError if another process modified the index, or if it cannot be
    written.
    """
    from aggarray.index.hdf5_columns import directory_of

    path, home = os.path.realpath(path), home_of(path)
    encoder = Encoder(Writer())
    arrays = [encoder.array(a) for a in contents.arrays]
    document, records = _documents(contents, encoder)
    files = written(list(encoder.files), home, relative)
    document |= {"arrays": arrays, "files": encoder.writer.texts(files)}
    names = np.array(files, object)

    def references(table: References) -> np.ndarray:
        return np.asarray(names[encoder.file_codes(table)], object)

    with replace_index(path, expected) as (temporary, generation):
        with created(temporary) as dataset:
            if convention == CFA04.name:
                container: Container = CFA04(dataset, references, home if relative else None)
            else:
                container = CF113(dataset, references)
            left_out = container.write_all(contents.arrays)
            encoder.writer.write(dataset, document, records, generation)
        append_directory(temporary, directory_of(temporary, GROUP))
    return left_out, generation


def _documents(contents: IndexContents, encoder: Encoder) -> tuple[dict[str, Any], dict[str, Any]]:
    """Encode everything except the arrays; return the two JSON documents."""
    for structure in contents.structures:
        code = encoder.code(structure.uri)
        if structure.stamp is not None:
            encoder.stamps[code] = structure.stamp
    encoded_others = [encoder.array(a) for a in contents.others]
    file_codes = list(map(encoder.code, contents.files))
    stamps = np.full((len(encoder.files), 3), -1, np.int64)
    if len(encoder.files) - len(encoder.stamps) <= _FEW_FILES:
        # Files that were not scanned: their present state.
        for uri, code in encoder.files.items():
            if code not in encoder.stamps and "://" not in uri:
                with contextlib.suppress(OSError):
                    encoder.stamps[code] = stamp_of(uri)
    if encoder.stamps:
        stamps[list(encoder.stamps)] = list(encoder.stamps.values())
    document = {
        "others": encoded_others,
        "templates": encoder.templates,
        "attributes": encoder.attributes,
        **({"geometries": encoder.geometries} if encoder.geometries else {}),
        "stamps": [encoder.writer.column(c) for c in stamps.T],
        "details": contents.details,
        "named": encoder.writer.column(np.array(file_codes, np.int64)),
    }
    if contents.chunk_table:
        chunk_indexes = gather_chunk_indexes(_tables(contents.arrays))
        document["chunks"] = pack_chunk_indexes(chunk_indexes, encoder.files, encoder.stamps, encoder.writer)
    return document, pack(contents.structures, encoder.files, encoder.writer)


def _tables(arrays: Sequence[MasterArray]) -> Iterator[tuple[References, Access]]:
    """Yield the tables of sub-arrays whose files are opened by reads."""
    for array in arrays:
        if array._known is None:
            yield array._matrix.references, array._access
        yield from _tables(tuple(array.coords.values()))


def load(path: str, how: Opening) -> LoadedIndex:
    """Open an index without reading a data file.

    Raises IndexFileError if it is damaged, or refers to files outside the roots.
    """
    path, home = real_path(path), home_of(path)
    with how.access.reach():
        reader = Reader(path)
    with reader.opened():
        document = reader.document()
        files = Files(reader.texts(document["files"]), home, how.path_map)
        if how.access.roots is not None:
            check_roots(files, how.access.roots, path)
        decoder = Decoder(reader, document, files, how.access)
        if "chunks" in document:  # early indexes have none
            decoder.tables = StoredChunkIndexes(reader, document["chunks"], files, decoder.stamps)
        arrays = tuple(map(decoder.array, document["arrays"]))
        details, generation = document["details"], reader.generation
        named_files = [files[i] for i in reader.column(document["named"]).tolist()]
    if generation is None or not isinstance(details, dict):
        raise IndexFileError("damaged index (no generation)", path=path, hint=SAVE_AGAIN)

    def structures() -> list[Structure]:
        with Reader(path, generation, reader.reach).opened() as later:
            return unpack(later.document("records"), files, later)

    def others() -> list[MasterArray]:
        with Reader(path, generation, reader.reach).opened() as later:
            return list(map(Decoder(later, document, files, how.access).array, document["others"]))

    return LoadedIndex(arrays, details, named_files, generation, structures, others)


def find_convention(structure: Structure) -> Convention | None:
    """Return the convention of an index, None for plain data."""
    return OURS if "schema" in structure.groups.get(GROUP, {}) else convention_of(structure)


def may_be_replaced(path: str) -> bool:
    """Return whether a save may replace a file: an index, or an empty file."""
    if stored_generation(path) is not None:
        return True
    try:
        return os.path.isfile(path) and (not os.path.getsize(path) or find_convention(scan(path)) is not None)
    except (AggarrayError, FileNotFoundError):
        return False


def read_foreign(structure: Structure, convention: Convention, how: Opening) -> ForeignArrays:
    """Read an index of another program, without opening its fragments.

    Raises IndexFileError with the variable and the invalid value, and for files outside the roots.
    """

    def values(name: str) -> np.ndarray:
        variable = next(v for v in structure.variables if v.name == name)
        handle = open_file(structure.uri)
        try:
            # Values of the index may be stored in other files, to which the roots apply too.
            for path in getattr(handle, "external_files", lambda name: ())(name):
                # promise: foreign-index-roots
                how.access.check_named(path, structure.uri)
            return handle.read(name, full_box(variable.shape))
        finally:
            handle.close()

    arrays = convention.read(structure, values, how.path_map)
    if how.access.roots is not None:
        for matrix in arrays.matrices.values():
            check_roots(matrix.references.uris, how.access.roots, structure.uri)
    return arrays
