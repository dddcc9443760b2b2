"""An HDF5 file read by h5py: what the own reader of metadata does not know."""

import math
from typing import Any

import numpy as np

from aggarray.errors import FormatError, NotFoundError
from aggarray.formats.base import (
    LIBRARY_LOCK,
    Box,
    ChunkIndex,
    Structure,
    Variable,
    counts,
    naming_errors,
    stored_values,
    whole,
)
from aggarray.formats.hdf5.chunk_index import chunk_index_through_h5py, is_stored_plainly, lies_in_one_piece, offset_of
from aggarray.formats.hdf5.decoded_sizes import check_decoded_sizes
from aggarray.formats.hdf5.external import Source, sources_of
from aggarray.formats.hdf5.h5py_files import opened
from aggarray.formats.hdf5.h5py_scan import NOT_COORDINATE, plain_dtype, scan_structure
from aggarray.formats.hdf5.links import is_external, leads_outside
from aggarray.formats.hdf5.rows import padded, read_samples, rows_of, samples_dtype, sizes_of
from aggarray.formats.limits import is_plausible, is_scannable
from aggarray.memory.rows import offsets_of
from aggarray.storage.files import make_ready, refuse_remote


class H5pyFile:
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
        if is_external(dataset.id):
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
            check_decoded_sizes(dataset.id)
            self._checked.add(variable)
        values = _read_box(dataset, box)
        values = values if dtype.kind in "SOT" else values.astype(dtype, copy=False)
        return stored_values(values, encoding, joined, f"{self._path}, variable {variable!r}")

    def scanned(self, variable: Variable) -> np.ndarray | None:
        """Return all values of a variable, None for those in other files, and where a scan takes no such number of bytes."""
        dataset, dtype, _ = self.dataset(variable.name)
        if is_external(dataset.id) or not is_scannable(dataset.shape or (), dtype.itemsize):
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

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return where the values are stored, or None where that cannot be told as `ChunkIndex`."""
        dataset, dtype, _ = self.dataset(variable)
        return None if samples_dtype(dataset) is not None else chunk_index_through_h5py(self._path, dataset, dtype)

    def elsewhere(self, variable: str) -> list[Source]:
        """Return where external and virtual storage is, resolved as HDF5 does: against the folder of this file."""
        return sources_of(self._path, self.dataset(variable)[0])

    def close(self) -> None:
        """Close the file."""
        # No dataset is open any more: h5py need not look for any, which is most of what its own close does.
        self._datasets.clear()
        self._file.id.close()


def _check_text(dataset: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Raise ValueError for texts of fixed length that take much memory, and that what is stored does not bear out."""
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind == "S" and not is_plausible(size, dataset.id.get_storage_size()):
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


def scan_by_library(path: str) -> Structure:
    """Return what h5py sees of a file."""
    make_ready(path)
    with LIBRARY_LOCK, naming_errors(path), opened(path) as file:
        label = "netCDF4" if "_NCProperties" in file.attrs else "HDF5"
        return scan_structure(path, file, label, H5pyFile(path, file).scanned)
