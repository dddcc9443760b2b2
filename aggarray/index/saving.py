"""Saving of an index, which replaces the file atomically."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.dataclass import dataclass, field
from aggarray.errors import AggarrayError
from aggarray.formats import scan, stamp_of
from aggarray.formats.base import Structure
from aggarray.index import GROUP
from aggarray.index.chunk_packing import ChunkPacker
from aggarray.index.container import Container
from aggarray.index.conventions.cf113_write import CF113
from aggarray.index.conventions.cfa04_write import CFA04
from aggarray.index.directory import append_directory
from aggarray.index.encoder import Encoder
from aggarray.index.hdf5_columns import directory_of
from aggarray.index.netcdf import created
from aggarray.index.recognition import find_convention, stored_generation
from aggarray.index.record_columns import ContinuedRecords
from aggarray.index.records import pack
from aggarray.index.replacement import check_unmodified, replace_index
from aggarray.index.store import Writer
from aggarray.index.uris import home_of, real_path
from aggarray.memory.texts import Texts
from aggarray.partition.matrix import References
from aggarray.read.chunk_index import gather_chunk_indexes
from aggarray.scan.structure_table import stamped
from aggarray.storage.access import Access
from aggarray.storage.files import is_file, stat_file

#: The conventions in which other software may read a saved index.
CONVENTIONS = ("CF-1.13", "CFA-0.4")

#: Most files without a known state whose state is read when an index is saved.
_FEW_FILES = 10_000


@dataclass(frozen=True, slots=True)
class IndexContents:
    """Contents of an index.

    ``structures``: the scanned structure of each file; ``others``: joined arrays that no scan returned; ``details``: JSON of
    the caller, in which numbers refer to ``files``; ``chunk_table``: whether the index stores the chunk indexes of the files,
    which are read if they are not known yet; ``redefined``: see `Container`.
    """

    arrays: Sequence[MasterArray]
    structures: Sequence[Structure] | ContinuedRecords = ()
    others: Sequence[MasterArray] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    files: Sequence[str] = ()
    chunk_table: bool = True
    redefined: Collection[tuple[str, str]] = ()


def save(
    path: str, contents: IndexContents, convention: str = "CF-1.13", relative: bool = True, expected: int | None = None
) -> tuple[list[tuple[str, str]], int]:
    """Write an index; return the arrays left out, and its generation.

    ``path``: a local path, or an address with ``://``; ``expected``: the generation that is updated, None to overwrite any.
    What the convention cannot express, as (name, reason), is stored in the group of aggarray only. Raises IndexFileError if
    another process modified the index, or if it cannot be written.
    """
    path, home = real_path(path), home_of(path)
    if expected is not None:
        check_unmodified(path, expected)  # before items of the old index are read
    encoder = Encoder(Writer())
    arrays = [encoder.array(a) for a in contents.arrays]
    document, records = _documents(contents, encoder)
    files = encoder.files.references(home, relative)
    if "fixes" in contents.details:
        encoder.writer.require(3)
    document |= {"arrays": arrays, "files": encoder.writer.texts(files)}

    def references(table: References) -> tuple[Texts, np.ndarray]:
        return files, encoder.files.of(table.uris)

    with replace_index(path, expected) as (temporary, generation):
        with created(temporary) as dataset:
            if convention == CFA04.name:
                container: Container = CFA04(dataset, references, home if relative else None)
            else:
                container = CF113(dataset, references)
            container.redefined = contents.redefined
            left_out = container.write_all(contents.arrays)
            encoder.writer.write(dataset, document, records, generation)
        append_directory(temporary, directory_of(temporary, GROUP))
    return left_out, generation


def _documents(contents: IndexContents, encoder: Encoder) -> tuple[dict[str, Any], dict[str, Any]]:
    """Encode everything except the arrays; return the two JSON documents."""
    base, added = None, contents.structures
    scanned = np.zeros(0, np.int64)
    if isinstance(added, ContinuedRecords):
        (files, _), base, added = added.uris(), added.base, added.added
        scanned = encoder.files.of(files)
        encoder.add_stamps(scanned, base.stamps)
    pairs = [(uri, stamp or (-1, 0, 0)) for uri, stamp in stamped(added)]
    codes = encoder.files.of([uri for uri, _ in pairs])
    encoder.add_stamps(codes, np.array([stamp for _, stamp in pairs], np.int64).reshape(-1, 3))
    scanned = np.concatenate([scanned, codes])
    encoded_others = [encoder.array(a) for a in contents.others]
    file_codes = encoder.files.of(contents.files)
    stamps = encoder.stamps()
    unknown = np.flatnonzero(stamps[:, 0] < 0)
    if 0 < len(unknown) <= _FEW_FILES:
        # Files that were not scanned: their present state.
        for code, uri in zip(unknown.tolist(), encoder.files.some(unknown), strict=True):
            with contextlib.suppress(OSError):
                stamps[code] = stamps[code] if "://" in uri else stamp_of(uri)
    document = {
        "others": encoded_others,
        "templates": encoder.templates,
        "attributes": encoder.attributes,
        **({"geometries": encoder.geometries} if encoder.geometries else {}),
        "stamps": [encoder.writer.column(c) for c in stamps.T],
        "details": contents.details,
        "named": encoder.writer.column(file_codes),
    }
    if contents.chunk_table:
        packer = ChunkPacker(encoder.files, stamps)
        for index in gather_chunk_indexes(_tables(contents.arrays), packer.add_known):
            packer.add(index)
        document["chunks"] = packer.packed(encoder.writer)
    return document, pack(added, scanned, encoder.writer, base)


def _tables(arrays: Sequence[MasterArray]) -> Iterator[tuple[References, Access]]:
    """Yield the tables of sub-arrays whose files are opened by reads."""
    for array in arrays:
        if array._known is None:
            yield array._matrix.references, array._access
        yield from _tables(tuple(array.coords.values()))


def may_be_replaced(path: str) -> bool:
    """Return whether a save may replace a file: an index, or an empty file."""
    if stored_generation(path) is not None:
        return True
    try:
        return is_file(path) and (not stat_file(path).size or find_convention(scan(path)) is not None)
    except (AggarrayError, FileNotFoundError):
        return False
