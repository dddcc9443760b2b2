"""Opening of an index of aggarray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aggarray.arrays.master import MasterArray
from aggarray.dataclass import dataclass
from aggarray.errors import IndexFileError
from aggarray.index import SAVE_AGAIN, Opening
from aggarray.index.chunk_tables import StoredChunkIndexes
from aggarray.index.decoder import Decoder
from aggarray.index.indexed_files import Files
from aggarray.index.store import Reader
from aggarray.index.uris import check_roots, home_of, real_path

if TYPE_CHECKING:
    from aggarray.index.record_columns import RecordColumns
    from aggarray.scan.structure_table import StructureTable


@dataclass(frozen=True, slots=True)
class LoadedIndex:
    """An opened index, whose structures and others are read lazily.

    ``records``: the structures as columns; ``has_others``: whether there are others.
    """

    arrays: tuple[MasterArray, ...]
    details: Mapping[str, Any]
    files: Sequence[str]
    generation: int
    records: Callable[[], RecordColumns]
    structures: Callable[[], StructureTable]
    others: Callable[[], list[MasterArray]]
    has_others: bool


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
        has_others = bool(document["others"])
    if generation is None or not isinstance(details, dict):
        raise IndexFileError("damaged index (no generation)", path=path, hint=SAVE_AGAIN)

    def records() -> RecordColumns:
        from aggarray.index.record_columns import read_columns

        with Reader(path, generation, reader.reach).opened() as later:
            return read_columns(later.document("records"), files, later)

    def structures() -> StructureTable:
        from aggarray.scan.structure_table import StructureTable

        with reader.index_errors():
            return StructureTable(records().structures())

    def others() -> list[MasterArray]:
        with Reader(path, generation, reader.reach).opened() as later:
            return list(map(Decoder(later, document, files, how.access).array, document["others"]))

    return LoadedIndex(arrays, details, named_files, generation, records, structures, others, has_others)
