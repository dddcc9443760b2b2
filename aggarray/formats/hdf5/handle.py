"""An open netCDF-4 or HDF5 file.

Values are located without a library where possible (`formats.hdf5.metadata`). h5py opens the file when it is first needed, and
reads what has no chunk index.
"""

import math
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from aggarray.errors import FormatError
from aggarray.formats.base import (
    LIBRARY_LOCK,
    Box,
    ChunkIndex,
    naming_errors,
)
from aggarray.formats.hdf5 import isolated as apart
from aggarray.formats.hdf5.external import Source, external_files
from aggarray.formats.hdf5.h5py_files import open_file
from aggarray.formats.hdf5.library import H5pyFile
from aggarray.formats.hdf5.metadata.chunk_index import check_chunks, chunk_index_of, piece_of, texts_of
from aggarray.formats.hdf5.metadata.data import UNREADABLE, is_invalid, refuse, require_supported
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.rows import StoredRows, stored_rows
from aggarray.formats.hdf5.metadata.validation import contradicts_itself
from aggarray.formats.hdf5.rows import padded, rows_of
from aggarray.memory.creation import mapped
from aggarray.storage.remote import is_remote

_T = TypeVar("_T")


class HDF5File:
    """An open netCDF-4 or HDF5 file, by h5py only when something is asked that cannot be told without it.

    It is not kept between reads: HDF5 lets nobody else in this process open a file that is open with other locking flags.
    """

    lasting = False

    def __init__(self, path: str):
        self._path = path
        self._lock = threading.Lock()
        self._direct: H5File | None = None
        # By variable, and whether it is their sizes.
        self._rows: dict[str, tuple[StoredRows, bool]] = {}
        self._opened: H5pyFile | None = None
        # Variables of which was said that no other file has any of their values.
        self._alone: set[str] = set()
        # Variables whose index of chunks was looked at.
        self._checked: set[str] = set()
        # The file contradicts itself.
        self._doubtful = False
        try:
            self._direct = H5File(path)
        except UNREADABLE as error:
            self._doubt(error)
            if self._apart():
                # It may be no file of HDF5 at all.
                apart.ask_isolated(path, "open")
                return
            with naming_errors(path), LIBRARY_LOCK:
                self._library()

    def _doubt(self, error: BaseException, variable: str | None = None) -> None:
        """Note whether the library is to be kept from crashing this process; FormatError where it would give other values."""
        refuse(error, self._path, variable)
        self._doubtful = self._doubtful or (is_invalid(error) and not is_remote(self._path) and apart.can_isolate())

    def _apart(self) -> bool:
        """Tell whether another process is to be asked; before the library is opened here, the file is looked at."""
        if self._opened is None and not self._doubtful and not is_remote(self._path) and apart.can_isolate():
            # promise: hdf5-validated-before-read
            self._doubtful = contradicts_itself(self._path)
        return self._doubtful

    def _library(self) -> H5pyFile:
        """Return the file as h5py has it; the library's lock must be held."""
        if self._opened is None:
            self._opened = H5pyFile(self._path, open_file(self._path))
        return self._opened

    def _told(self, ask: Callable[[H5File], _T], otherwise: Callable[[H5pyFile, str], _T], variable: str) -> _T:
        """Return what is told without a library, else what a method of the library tells."""
        if self._direct is not None:
            try:
                with self._lock:
                    return ask(self._direct)
            except UNREADABLE as error:
                self._doubt(error, variable)
        if self._apart():
            told: _T = apart.ask_isolated(self._path, otherwise.__name__, variable)
            return told
        with naming_errors(self._path, variable), LIBRARY_LOCK:
            return otherwise(self._library(), variable)

    def read(self, variable: str, box: Box) -> np.ndarray:
        """Return the stored values of a box."""
        found = self._from_heap(variable, box)
        if found is not None:
            return found
        self._check(variable)
        if self._apart():
            if variable in self._alone and apart.ask_isolated(self._path, "elsewhere", variable):
                raise self._changed(variable)
            values: np.ndarray = apart.ask_isolated(self._path, "values", variable, box)
            return values
        with naming_errors(self._path, variable), LIBRARY_LOCK:
            library = self._library()
            if variable in self._alone and library.elsewhere(variable):
                # Whoever asked has no leave for other files.
                raise self._changed(variable)
            return library.values(variable, box)

    def _check(self, variable: str) -> None:
        """Raise FormatError where the library would not find chunks that are there."""
        if self._direct is None or variable in self._checked:
            return
        try:
            with self._lock:
                check_chunks(self._direct, variable)
        except UNREADABLE as error:
            self._doubt(error, variable)
        self._checked.add(variable)

    def _changed(self, variable: str) -> FormatError:
        return FormatError(f"{self._path}, variable {variable!r}: changed while it was read: open the files anew")

    def _from_heap(self, variable: str, box: Box) -> np.ndarray | None:
        """Return texts, or rows of numbers, without a library; None for other variables, and where it is left to one."""
        if self._direct is None:
            return None
        try:
            with self._lock:
                texts = None
                if variable not in self._rows and self._direct.has(variable):
                    texts = texts_of(self._direct, variable, self._path)
                if texts is None:
                    return self._row_values(self._direct, variable, box)
        except UNREADABLE as error:
            self._doubt(error, variable)
            return None
        key: Any = (*box, ...)  # without dimensions, too, this is an array
        return np.asarray(texts[key])

    def _row_values(self, direct: H5File, variable: str, box: Box) -> np.ndarray:
        """Return a box of samples, or of the sizes of rows; one of `UNREADABLE` for other variables."""
        rows = self._rows.get(variable)
        if rows is None:
            name = variable if direct.has(variable) else rows_of(variable) or variable
            rows = self._rows[variable] = stored_rows(direct.data, direct.variable(name)), name != variable
        found, sizes = rows
        (chosen,) = box
        if sizes:
            return padded(np.diff(found.offsets), chosen)
        values = found.samples(direct.data, chosen.start, chosen.stop)[:: chosen.step or 1]
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def mapped(self, variable: str) -> np.ndarray | None:
        """Return the whole variable as a read-only view of the mapped file, or None unless it lies there in one piece."""
        if is_remote(self._path):
            return None
        piece = self._told(lambda file: piece_of(file, variable), H5pyFile.piece, variable)
        if piece is None:
            return None
        dtype, offset, shape = piece
        with naming_errors(self._path, variable):
            if offset + dtype.itemsize * math.prod(shape) > os.path.getsize(self._path):
                return None
            return mapped(self._path, offset, dtype, shape).numpy()

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return where the values are stored, or None where that cannot be told as `ChunkIndex`."""
        return self._told(lambda file: chunk_index_of(file, variable), H5pyFile.chunks, variable)

    def elsewhere(self, variable: str) -> Iterable[str]:
        """Return the files of external and of virtual storage, and those that these name; each is opened after it is told."""

        def without(file: H5File) -> list[Source]:
            """Return nothing: datasets that have values elsewhere are left to the library, as are links to other files."""
            require_supported(not file.variable(variable).is_borrowing, "values in other files")
            self._alone.add(variable)
            return []

        told = self._told(without, H5pyFile.elsewhere, variable)
        return external_files(told) if told else []

    def close(self) -> None:
        """Close the file."""
        if self._direct is not None:
            self._direct.close()
        if self._opened is not None:
            with LIBRARY_LOCK:
                self._opened.close()
