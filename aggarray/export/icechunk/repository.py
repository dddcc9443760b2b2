"""A new Icechunk repository with arrays: references where possible."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, product
from typing import Any
from urllib.parse import quote

from aggarray.aggregate.report import Problem, Report
from aggarray.arrays.master import MasterArray
from aggarray.errors import AggregationError, IndexFileError, MissingFileError, counted, install_command
from aggarray.export.chunk_grid import ChunkGrid, GridError
from aggarray.export.icechunk.references import Reference, find_references, references, stored_document
from aggarray.export.zarr_view.contents import ViewArray, ViewContents, joined_path
from aggarray.opening.provenance import Listing
from aggarray.options import get_options
from aggarray.output.chunks import Position
from aggarray.output.compression import parse_compression
from aggarray.output.zarr_metadata import Document, array_document, group_document, json_bytes
from aggarray.read.executor import BoundedExecutor, ReadTask
from aggarray.storage.atomic import replace_atomically, write_errors

#: References that are handed to Icechunk at a time.
_TOGETHER = 10_000


def write_repository(arrays: Sequence[MasterArray], path: str, copy: bool) -> Report:
    """Write a repository into a new folder; see `Aggregation.to_icechunk`."""
    try:
        import icechunk
    except ImportError as error:
        raise AggregationError("Icechunk repositories need icechunk", hint=install_command("icechunk")) from error
    path = os.path.realpath(path)
    _check_unused(path)
    choices = _Choices(copy)
    contents = ViewContents(arrays, None, parse_compression(None, ".zarr"), choices.keep)
    report = Report(not choices.problems, Listing(choices.problems))
    if arrays and not contents.arrays:
        return report
    with write_errors(path), replace_atomically(path, lambda: _check_unused(path), folder=True) as temporary:
        try:
            writer = _Writer(temporary)
            writer.write(contents, choices.grids)
        except icechunk.IcechunkError as error:
            reason = error.message.strip().splitlines()[0].removeprefix("x ")
            raise IndexFileError(f"cannot be written: {reason}", path=path, hint="check the folder and its space") from error
    return report


class _Choices:
    """Arrays that are referenced, by identity, and those that are refused."""

    def __init__(self, copy: bool) -> None:
        self.copy = copy
        self.grids: dict[int, ChunkGrid] = {}
        self.problems: list[Problem] = []

    def keep(self, array: MasterArray) -> bool:
        """Find the references of an array; return whether it is stored at all."""
        try:
            grid = find_references(array)
        except (GridError, MissingFileError) as error:
            if isinstance(error, MissingFileError) and array._access.missing != "fill":
                raise
            if not self.copy:
                message = f"{array.name}: no references: {error.what}; pass copy=True to write its values"
                self.problems.append(Problem("refused", error.path, message))
            return self.copy
        if grid is not None:
            self.grids[id(array)] = grid
        return True


class _Writer:
    """Session of a new repository in a folder."""

    def __init__(self, folder: str) -> None:
        import icechunk

        self._repository = icechunk.Repository.create(icechunk.local_filesystem_storage(folder))
        self._session = self._repository.writable_session("main")
        self._folders: set[str] = set()

    def write(self, contents: ViewContents, grids: dict[int, ChunkGrid]) -> None:
        """Write all groups and arrays, and commit them."""
        for path, attributes in contents.groups.items():
            self._put_document(path, group_document(attributes))
        copied = 0
        with BoundedExecutor(get_options().threads) as executor:
            for path, array in contents.arrays.items():
                grid = grids.get(id(array.variable.source))
                if grid is not None:
                    self._put_document(path, stored_document(array.variable, grid))
                    self._refer(path, references(array.variable.source, grid))
                    continue
                copied += 1
                self._put_document(path, array_document(array.variable, array.codecs))
                for task in self._copies(path, array):
                    executor.do(task)
        self._allow_folders()
        message = f"Add {counted(len(grids), 'array')} by reference, {copied:,} by value (aggarray)"
        self._session.commit(message)

    def _put(self, key: str, content: bytes | memoryview) -> None:
        from zarr.core.buffer.cpu import Buffer
        from zarr.core.sync import sync

        sync(self._session.store.set(key, Buffer.from_bytes(content)))

    def _put_document(self, path: str, document: Document) -> None:
        self._put(joined_path(path, "zarr.json"), json_bytes(document))

    def _copies(self, path: str, array: ViewArray) -> Iterator[ReadTask]:
        """Yield the tasks that write the chunks of an array."""
        for position in product(*map(range, array.grid)):
            yield ReadTask(partial(self._copy, path, array, position), 2 * array.chunk_bytes)

    def _copy(self, path: str, array: ViewArray, position: Position) -> None:
        self._put(_key(path, position), array.read(position, 1))

    def _refer(self, path: str, given: Iterator[Reference]) -> None:
        """Store references."""
        from icechunk import VirtualChunkSpec

        while batch := list(islice(given, _TOGETHER)):
            specs = []
            for position, file, offset, size, modified, inline in batch:
                if inline is not None:
                    self._put(_key(path, position), inline)
                    continue
                self._folders.add(os.path.dirname(file))
                specs.append(VirtualChunkSpec(list(position), f"file://{quote(file)}", offset, size, None, modified))
            self._session.store.set_virtual_refs(path, specs, validate_containers=False)

    def _allow_folders(self) -> None:
        """Store in the repository the folders that hold its files."""
        import icechunk

        config = icechunk.RepositoryConfig.default()
        for folder in common_folders(self._folders):
            store: Any = icechunk.local_filesystem_store(folder)
            # Icechunk compares this prefix with the decoded addresses of chunks.
            config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(f"file://{folder}/", store))
        self._repository.reopen(config=config).save_config()


def common_folders(folders: Iterable[str]) -> list[str]:
    """Return the few folders that contain others, but never the root.

    >>> common_folders(["/data/a/b", "/data/a/c", "/home/d"])
    ['/data/a', '/home/d']
    """
    by_top: dict[str, list[str]] = {}
    for folder in sorted(folders):
        by_top.setdefault(folder.split("/")[1], []).append(folder)
    return [os.path.commonpath(below) for below in by_top.values()]


def _check_unused(path: str) -> None:
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise IndexFileError("exists and is not an empty folder", path=path, hint="give the path of a new folder")


def _key(path: str, position: Sequence[int]) -> str:
    return "/".join([path, "c", *map(str, position)])
