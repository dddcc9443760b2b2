"""How are the values of an open netCDF-4 or HDF5 file asked for?

Where they are stored is told without a library where that can be (`aggarray.formats._h5`). h5py opens the file when it is
needed for the first time: values are read by it, and it tells of all that is left to it.
"""

import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from aggarray.errors import FormatError, NotFoundError
from aggarray.formats import _hdf5_apart as apart
from aggarray.formats._h5.data import LEFT, is_doubtful, modelled, refuse
from aggarray.formats._h5.file import H5File
from aggarray.formats._h5.rows import StoredRows, stored_rows
from aggarray.formats._h5.survey import contradicts_itself
from aggarray.formats._h5.tables import check_stored, piece_of, table_of, texts_of
from aggarray.formats._hdf5_chunks import describe, is_stored_plainly, lies_in_one_piece, offset_of
from aggarray.formats._hdf5_elsewhere import Source, followed, sources_of
from aggarray.formats._hdf5_links import borrows, leads_outside
from aggarray.formats._hdf5_rows import padded, read_samples, rows_of, samples_dtype, sizes_of
from aggarray.formats._hdf5_scan import NOT_COORDINATE, plain_dtype
from aggarray.formats._hdf5_swelling import check_swelling
from aggarray.formats.base import (
    LIBRARY_LOCK,
    Box,
    Chunks,
    Variable,
    blaming,
    counts,
    h5py_file,
    stored_values,
    whole,
)
from aggarray.formats.claims import believable, scannable
from aggarray.formats.places import for_library, refuse_remote
from aggarray.memory.making import mapped
from aggarray.memory.rows import offsets_of
from aggarray.remote import is_remote

_T = TypeVar("_T")


def _open(path: str) -> Any:
    """Open a file by h5py; the lock must be held."""
    if is_remote(path):
        return h5py_file(for_library(path), "r")
    try:
        # Files on read-only or network file systems often cannot be locked, and reading needs no lock.
        return h5py_file(path, "r", locking=False)
    except OSError:
        # Another part of this process has the file open with locking: the two must agree.
        return h5py_file(path, "r")


@contextmanager
def opened(path: str) -> Iterator[Any]:
    """Give a file as h5py has it for the length of a block; the lock must be held."""
    file = _open(path)
    try:
        yield file
    finally:
        file.close()


class Library:
    """A file as h5py has it open; datasets are looked up once. The lock must be held around every call."""

    def __init__(self, path: str, file: Any):
        self._path, self._file = path, file
        self._datasets: dict[str, tuple[Any, np.dtype[Any], dict[str, Any]]] = {}
        self._offsets: dict[str, np.ndarray] = {}
        self._checked: set[str] = set()

    def dataset(self, variable: str) -> tuple[Any, np.dtype[Any], dict[str, Any]]:
        """Return a variable's dataset, its stored dtype and its text encoding as an attribute."""
        import h5py

        known = self._datasets.get(variable)
        if known is not None:
            return known
        parent, _, base = variable.rpartition("/")
        # The first name is that of a variable named like a dimension which it does not stand for.
        named = (f"{parent}/{NOT_COORDINATE}{base}", variable) if base else ()
        # Nothing outside the file that was named is opened.
        # promise: hdf5-read-external-links
        paths = [path for path in named if not leads_outside(self._file, path)]
        # A name that is there but does not open is damage, which h5py's own error tells.
        there = (self._file[p] for p in paths if self._file.get(p, getlink=True) is not None)
        dataset = next((item for item in there if isinstance(item, h5py.Dataset)), None)
        if dataset is None and (rows := rows_of(variable)):
            return self.dataset(rows)
        if dataset is None:
            raise NotFoundError(f"{self._path}: no variable {variable!r}; at its top are {', '.join(self._file)}")
        dtype = samples_dtype(dataset) or plain_dtype(dataset)
        if isinstance(dtype, str):
            raise FormatError(f"{self._path}, variable {variable!r}: {dtype}")
        encoding = dataset.attrs.get("_Encoding")
        encoding = encoding.decode("ascii", "replace") if isinstance(encoding, bytes) else encoding
        self._datasets[variable] = known = (dataset, dtype, {} if encoding is None else {"_Encoding": encoding})
        return known

    def holds(self, name: str) -> bool:
        """Tell whether there is something of a name at the top."""
        return self._file.get(name, getlink=True) is not None

    def values(self, variable: str, box: Box) -> np.ndarray:
        """Return the values of a box as they are, errors too."""
        dataset, dtype, encoding = self.dataset(variable)
        if borrows(dataset.id):
            refuse_remote(self._path, f"variable {variable!r} has its values in other files")
        if samples_dtype(dataset) is not None:
            return self._rows(variable, box)
        if dataset.shape is None:
            # A dataset without a dataspace holds nothing.
            return stored_values(np.empty(counts(box), dtype), {})
        joined = len(box) < len(dataset.shape)
        if joined:
            box = (*box, slice(0, dataset.shape[-1], 1))
        # promise: hdf5-text-memory
        _check_text(dataset, dtype, counts(box))
        if variable not in self._checked:
            check_swelling(dataset.id)
            self._checked.add(variable)
        values = _read_box(dataset, box)
        values = values if dtype.kind in "SOT" else values.astype(dtype, copy=False)
        return stored_values(values, encoding, joined, f"{self._path}, variable {variable!r}")

    def scanned(self, variable: Variable) -> np.ndarray | None:
        """Return all values of a variable, None for those in other files, and where a scan takes no such number of bytes."""
        dataset, dtype, _ = self.dataset(variable.name)
        if borrows(dataset.id) or not scannable(dataset.shape or (), dtype.itemsize):
            return None
        return self.values(variable.name, whole(variable.shape))

    def _rows(self, variable: str, box: Box) -> np.ndarray:
        """Return a box of the samples of a variable of rows, or of their sizes; rows that were never written have none."""
        dataset, dtype, _ = self.dataset(variable)
        known = self._offsets.get(dataset.name)
        if known is None:
            known = self._offsets[dataset.name] = offsets_of(sizes_of(self._path, dataset))
        if dataset.name.rpartition("/")[2].removeprefix(NOT_COORDINATE) == variable.rpartition("/")[2]:
            return read_samples(dataset, dtype, known, box).astype(dtype.newbyteorder("="), copy=False)
        return padded(np.diff(known), box[0])

    def piece(self, variable: str) -> tuple[np.dtype[Any], int, tuple[int, ...]] | None:
        """Return dtype, offset and shape of a variable that lies in the file in one piece as it is, None for others."""
        dataset, dtype, _ = self.dataset(variable)
        if (
            not dataset.size
            or samples_dtype(dataset) is not None
            or not lies_in_one_piece(dataset)
            or not is_stored_plainly(dataset, dtype)
        ):
            return None
        offset = offset_of(dataset)
        return None if offset is None else (dtype, offset, dataset.shape)

    def chunks(self, variable: str) -> Chunks | None:
        """Return where the values are stored, or None where that cannot be told as `Chunks`."""
        dataset, dtype, _ = self.dataset(variable)
        return None if samples_dtype(dataset) is not None else describe(self._path, dataset, dtype)

    def elsewhere(self, variable: str) -> list[Source]:
        """Return where external and virtual storage is, resolved as HDF5 does: against the folder of this file."""
        return sources_of(self._path, self.dataset(variable)[0])

    def close(self) -> None:
        """Close the file."""
        # No dataset is open any more: h5py need not look for any, which is most of what its own close does.
        self._datasets.clear()
        self._file.id.close()


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
        self._opened: Library | None = None
        # Variables of which was said that no other file has any of their values.
        self._alone: set[str] = set()
        # Variables whose index of chunks was looked at.
        self._checked: set[str] = set()
        # The file contradicts itself.
        self._doubtful = False
        try:
            self._direct = H5File(path)
        except LEFT as error:
            self._doubt(error)
            if self._apart():
                # It may be no file of HDF5 at all.
                apart.ask(path, "open")
                return
            with blaming(path), LIBRARY_LOCK:
                self._library()

    def _doubt(self, error: BaseException, variable: str | None = None) -> None:
        """Note whether the library is to be kept from crashing this process; FormatError where it would give other values."""
        refuse(error, self._path, variable)
        self._doubtful = self._doubtful or (is_doubtful(error) and not is_remote(self._path) and apart.possible())

    def _apart(self) -> bool:
        """Tell whether another process is to be asked; before the library is opened here, the file is looked at."""
        if self._opened is None and not self._doubtful and not is_remote(self._path) and apart.possible():
            # promise: hdf5-validated-before-read
            self._doubtful = contradicts_itself(self._path)
        return self._doubtful

    def _library(self) -> Library:
        """Return the file as h5py has it; the library's lock must be held."""
        if self._opened is None:
            self._opened = Library(self._path, _open(self._path))
        return self._opened

    def _told(self, ask: Callable[[H5File], _T], otherwise: Callable[[Library, str], _T], variable: str) -> _T:
        """Return what is told without a library, else what a method of the library tells."""
        if self._direct is not None:
            try:
                with self._lock:
                    return ask(self._direct)
            except LEFT as error:
                self._doubt(error, variable)
        if self._apart():
            told: _T = apart.ask(self._path, otherwise.__name__, variable)
            return told
        with blaming(self._path, variable), LIBRARY_LOCK:
            return otherwise(self._library(), variable)

    def read(self, variable: str, box: Box) -> np.ndarray:
        """Return the stored values of a box."""
        found = self._from_heap(variable, box)
        if found is not None:
            return found
        self._check(variable)
        if self._apart():
            if variable in self._alone and apart.ask(self._path, "elsewhere", variable):
                raise self._changed(variable)
            values: np.ndarray = apart.ask(self._path, "values", variable, box)
            return values
        with blaming(self._path, variable), LIBRARY_LOCK:
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
                check_stored(self._direct, variable)
        except LEFT as error:
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
        except LEFT as error:
            self._doubt(error, variable)
            return None
        key: Any = (*box, ...)  # without dimensions, too, this is an array
        return np.asarray(texts[key])

    def _row_values(self, direct: H5File, variable: str, box: Box) -> np.ndarray:
        """Return a box of samples, or of the sizes of rows; one of `LEFT` for other variables."""
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
        piece = self._told(lambda file: piece_of(file, variable), Library.piece, variable)
        if piece is None:
            return None
        dtype, offset, shape = piece
        with blaming(self._path, variable):
            if offset + dtype.itemsize * math.prod(shape) > os.path.getsize(self._path):
                return None
            return mapped(self._path, offset, dtype, shape).numpy()

    def chunks(self, variable: str) -> Chunks | None:
        """Return where the values are stored, or None where that cannot be told as `Chunks`."""
        return self._told(lambda file: table_of(file, variable), Library.chunks, variable)

    def elsewhere(self, variable: str) -> Iterable[str]:
        """Return the files of external and of virtual storage, and those that these name; each is opened after it is told."""

        def without(file: H5File) -> list[Source]:
            """Return nothing: datasets that have values elsewhere are left to the library, as are links to other files."""
            modelled(not file.variable(variable).is_borrowing, "values in other files")
            self._alone.add(variable)
            return []

        told = self._told(without, Library.elsewhere, variable)
        return followed(told) if told else []

    def close(self) -> None:
        """Close the file."""
        if self._direct is not None:
            self._direct.close()
        if self._opened is not None:
            with LIBRARY_LOCK:
                self._opened.close()


def _check_text(dataset: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Raise ValueError for texts of fixed length that take much memory, and that what is stored does not bear out."""
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind == "S" and not believable(size, dataset.id.get_storage_size()):
        raise ValueError(f"a claim of {size} bytes of text, hardly any stored; write the file anew")


def _read_box(dataset: Any, box: Box) -> np.ndarray:
    """Read a box; what lies beyond the end along an unlimited dimension has not been written and is fill value."""
    inner = tuple(slice(min(s.start, n), min(s.stop, n), s.step) for s, n in zip(box, dataset.shape, strict=True))
    if inner == box:
        return np.asarray(dataset[box])
    for chosen, n, most in zip(box, dataset.shape, dataset.maxshape, strict=True):
        if chosen.stop > n and most is not None:
            raise ValueError(f"only {n} of the wanted {chosen.stop} elements are there; the file has changed, open it again")
    # netCDF-4 lets one variable lengthen a dimension without touching the others that have it.
    out = np.full(counts(box), dataset.fillvalue, dataset.dtype)
    written = tuple(slice(0, n) for n in counts(inner))
    out[written] = dataset[inner]
    return out
