"""Open netCDF-4 or HDF5 files.

`formats.hdf5.metadata` locates values without the HDF5 library if possible. h5py opens the file when it is first needed, and
reads variables without a chunk index.
"""

from __future__ import annotations

import math
import os
from _thread import allocate_lock
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from aggarray.errors import FormatError
from aggarray.formats.base import LIBRARY_LOCK, Box, Variable, naming_errors
from aggarray.formats.hdf5.metadata.chunk_index import check_chunks, chunk_index_of, contiguous_of, numbers_of, texts_of
from aggarray.formats.hdf5.metadata.data import UNREADABLE, is_invalid, refuse, require_supported
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.partition.chunk_index import ChunkIndex
from aggarray.storage.state import changed
from aggarray.storage.urls import is_remote

if TYPE_CHECKING:
    from aggarray.formats.hdf5.external import Source
    from aggarray.formats.hdf5.library import H5pyFile
    from aggarray.formats.hdf5.metadata.rows import StoredRows
    from aggarray.formats.hdf5.virtual import VirtualPiece
    from aggarray.memory.texts import Texts

_T = TypeVar("_T")


class HDF5File:
    """Open netCDF-4 or HDF5 file, which h5py opens only if necessary.

    It is not kept open between reads: HDF5 does not let other code of this process open it with other locking flags.
    """

    lasting = False

    def __init__(self, path: str):
        self._path = path
        self._lock = allocate_lock()
        self._metadata: H5File | None = None
        # Rows by variable, and whether the variable is that of the row sizes.
        self._rows: dict[str, tuple[StoredRows, bool]] = {}
        self._opened: H5pyFile | None = None
        # Variables for which `external_files` has returned no other file.
        self._internal: set[str] = set()
        # Other files of variables, after `external_files` has returned all.
        self._external: dict[str, list[str]] = {}
        # Variables with other files, which were validated.
        self._validated: set[str] = set()
        # Variables whose chunk index was checked.
        self._checked: set[str] = set()
        # Whether the file is damaged, so that the library must be isolated.
        self._damaged = False
        try:
            self._metadata = H5File(path)
        except UNREADABLE as error:
            self._note_error(error)
            if self._must_isolate():
                from aggarray.formats.hdf5 import isolated

                # Raises an error if it is not an HDF5 file.
                isolated.call_isolated(path, "open")
                return
            with naming_errors(path), LIBRARY_LOCK:
                self._library()

    def _note_error(self, error: BaseException, variable: str | None = None) -> None:
        """Note damage that may crash the library, or raise FormatError."""
        refuse(error, self._path, variable)
        self._damaged = self._damaged or (is_invalid(error) and self._may_isolate())

    def _may_isolate(self) -> bool:
        """Return whether the library can read this file in another process."""
        from aggarray.formats.hdf5.isolated import can_isolate

        return not is_remote(self._path) and can_isolate()

    def _must_isolate(self) -> bool:
        """Return whether to isolate the library; the file is validated first."""
        if self._opened is None and not self._damaged and self._may_isolate():
            from aggarray.formats.hdf5.metadata.validation import is_damaged

            # promise: hdf5-validated-before-read
            self._damaged = is_damaged(self._path)
        return self._damaged

    def _library(self) -> H5pyFile:
        """Return the file opened by h5py; the library's lock must be held."""
        if self._opened is None:
            from aggarray.formats.hdf5.h5py_files import open_file
            from aggarray.formats.hdf5.library import H5pyFile

            self._opened = H5pyFile(self._path, open_file(self._path))
        if not self._opened.is_open:
            raise changed(self._path)
        return self._opened

    def _query(self, read: Callable[[H5File], _T], method: str, variable: str) -> _T:
        """Return the metadata reader's result, or a method's of `H5pyFile`."""
        if self._metadata is not None:
            try:
                with self._lock:
                    return read(self._metadata)
            except UNREADABLE as error:
                self._note_error(error, variable)
        result: _T = self._by_library(method, variable)
        return result

    def _by_library(self, method: str, variable: str, *arguments: Any) -> Any:
        """Call a method of `H5pyFile`, isolated if the file is damaged."""
        if self._must_isolate():
            from aggarray.formats.hdf5 import isolated

            return isolated.call_isolated(self._path, method, variable, *arguments)
        with naming_errors(self._path, variable), LIBRARY_LOCK:
            return getattr(self._library(), method)(variable, *arguments)

    def read(self, variable: str, box: Box) -> np.ndarray:
        """Return the stored values of a box."""
        heap_values = self._from_heap(variable, box)
        if heap_values is not None:
            return heap_values
        if self._metadata is not None and variable not in self._checked:
            # The library misses stored chunks of an invalid index.
            try:
                with self._lock:
                    check_chunks(self._metadata, variable)
            except UNREADABLE as error:
                self._note_error(error, variable)
            self._checked.add(variable)
        if variable in self._internal and self._by_library("external_files", variable):
            # The caller has not checked whether it may read these files.
            raise FormatError("changed while it was read", path=self._path, variable=variable, hint="open the files again")
        if variable not in self._internal | self._validated and not self._must_isolate():
            self._damaged = self._has_damaged_sources(variable)
            self._validated.add(variable)
        values: np.ndarray = self._by_library("values", variable, box)
        return values

    def column(self, variable: Variable) -> np.ndarray | Texts | None:
        """Return all values, texts in C order, None if only `read` does."""
        from aggarray.formats.hdf5.metadata.texts import text_column

        file = self._metadata
        if file is None:
            return None
        read = text_column if variable.dtype.kind == "T" else numbers_of
        try:
            with self._lock:
                return read(file, variable.name, variable.shape) if file.has(variable.name) else None
        except UNREADABLE as error:
            self._note_error(error, variable.name)
            return None

    def _from_heap(self, variable: str, box: Box) -> np.ndarray | None:
        """Return variable-length texts or rows without the library, else None."""
        file = self._metadata
        if file is None:
            return None
        try:
            with self._lock:
                is_new = variable not in self._rows and file.has(variable)
                texts = texts_of(file, variable, self._path) if is_new else None
                if texts is not None:
                    key: Any = (*box, ...)  # with an Ellipsis the result is an array even without dimensions
                    return np.asarray(texts[key])
                from aggarray.formats.hdf5.metadata.rows import stored_rows
                from aggarray.formats.hdf5.rows import rows_of, select_sizes

                if variable not in self._rows:
                    name = variable if file.has(variable) else rows_of(variable) or variable
                    self._rows[variable] = stored_rows(file.data, file.variable(name)), name != variable
                rows, is_sizes = self._rows[variable]
                (selection,) = box
                if is_sizes:
                    return select_sizes(np.diff(rows.offsets), selection)
                values = rows.samples(file.data, selection.start, selection.stop)[:: selection.step or 1]
                return values.astype(values.dtype.newbyteorder("="), copy=False)
        except UNREADABLE as error:
            self._note_error(error, variable)
            return None

    def mapped(self, variable: str) -> np.ndarray | None:
        """Return a read-only view of the mapped file, None if not contiguous."""
        if is_remote(self._path):
            return None
        contiguous = self._query(lambda file: contiguous_of(file, variable), "check", variable)
        if contiguous is None:
            return None
        dtype, offset, shape = contiguous
        with naming_errors(self._path, variable):
            if offset + dtype.itemsize * math.prod(shape) > os.path.getsize(self._path):
                return None
            from aggarray.memory.creation import mapped

            return mapped(self._path, offset, dtype, shape).numpy()

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return the chunk index, or None if only `read` returns the values."""
        return self._query(lambda file: chunk_index_of(file, variable), "check", variable)

    def deflate_level(self, variable: str) -> int | None:
        """Return the level of deflate, None without it or if it is unknown."""
        try:
            with self._lock:
                return None if self._metadata is None else self._metadata.variable(variable).deflate_level
        except UNREADABLE:
            return None

    def external_files(self, variable: str) -> Iterable[str]:
        """Yield the other files that hold values, each before it is opened."""
        if variable in self._external:
            return self._external[variable]
        sources = self._sources(variable)
        return self._noted(variable, sources) if sources else []

    def _noted(self, variable: str, sources: list[Source]) -> Iterable[str]:
        from aggarray.formats.hdf5.external import Source, external_files

        paths = []
        for path in external_files(sources, Source(self._path, variable)):
            paths.append(path)
            yield path
        self._external[variable] = paths

    def _has_damaged_sources(self, variable: str) -> bool:
        """Return whether the library must be isolated because of a source."""
        sources = self._sources(variable)
        if not sources:
            return False
        from aggarray.formats.hdf5.external import Source, must_isolate

        return must_isolate(Source(self._path, variable), sources) and self._may_isolate()

    def _sources(self, variable: str) -> list[Source]:
        """Return the sources of external and virtual storage."""

        def no_sources(file: H5File) -> list[Source]:
            header = file.variable(variable)
            require_supported(not header.external and header.virtual is None, "values in other files")
            self._internal.add(variable)
            return []

        return self._query(no_sources, "external_files", variable)

    def virtual_pieces(
        self, variable: str, shape: tuple[int, ...], stored: np.dtype[Any], check: Callable[[str], bool]
    ) -> list[VirtualPiece]:
        """Return the pieces of a virtual dataset; see `virtual.pieces_of`.

        The list is empty for other datasets.
        """
        mappings = self._by_library("mappings", variable)
        if not mappings:
            return []
        from aggarray.formats.hdf5.virtual import pieces_of
        from aggarray.formats.hdf5.virtual_mapping import VirtualLayout

        return pieces_of(self._path, variable, VirtualLayout(shape, mappings), stored, check)

    def close(self) -> None:
        """Close the file."""
        if self._metadata is not None:
            self._metadata.close()
        if self._opened is not None:
            with LIBRARY_LOCK:
                self._opened.close()
