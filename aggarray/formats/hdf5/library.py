"""HDF5 files read by h5py: variables that the metadata reader does not support."""

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
    full_box,
    naming_errors,
    stored_values,
)
from aggarray.formats.hdf5.chunk_index import chunk_index_through_h5py, has_numpy_layout, is_contiguous, offset_of
from aggarray.formats.hdf5.decoded_sizes import check_decoded_sizes
from aggarray.formats.hdf5.external import Source, sources_of
from aggarray.formats.hdf5.h5py_files import opened
from aggarray.formats.hdf5.h5py_scan import NOT_COORDINATE, plain_dtype, scan_structure
from aggarray.formats.hdf5.links import is_external, leads_outside
from aggarray.formats.hdf5.rows import read_samples, rows_of, samples_dtype, select_sizes, sizes_of
from aggarray.formats.limits import is_plausible, is_scannable
from aggarray.memory.rows import offsets_of
from aggarray.storage.files import make_ready, refuse_remote


class H5pyFile:
    """HDF5 file opened with h5py; each dataset is looked up once. The lock must be held around every call."""

    def __init__(self, path: str, file: Any):
        self._path, self._file = path, file
        self._datasets: dict[str, tuple[Any, np.dtype[Any], dict[str, Any]]] = {}
        self._offsets: dict[str, np.ndarray] = {}
        self._checked: set[str] = set()

    def dataset(self, variable: str) -> tuple[Any, np.dtype[Any], dict[str, Any]]:
        """Return the dataset of a variable, its stored dtype and its text encoding as an attribute."""
        import h5py

        entry = self._datasets.get(variable)
        if entry is not None:
            return entry
        parent, _, base = variable.rpartition("/")
        # The first path is that of a variable with the name of a dimension that is not its coordinate.
        candidates = (f"{parent}/{NOT_COORDINATE}{base}", variable) if base else ()
        # Other files are not opened.
        # promise: hdf5-read-external-links
        paths = [path for path in candidates if not leads_outside(self._file, path)]
        # A name that exists but does not open is damage: h5py raises its own error.
        items = (self._file[p] for p in paths if self._file.get(p, getlink=True) is not None)
        dataset = next((item for item in items if isinstance(item, h5py.Dataset)), None)
        if dataset is None and (rows := rows_of(variable)):
            return self.dataset(rows)
        if dataset is None:
            raise NotFoundError(f"no variable {variable!r}; the root group holds {', '.join(self._file)}", path=self._path)
        dtype = samples_dtype(dataset) or plain_dtype(dataset)
        if isinstance(dtype, str):
            raise FormatError(dtype, path=self._path, variable=variable)
        encoding = dataset.attrs.get("_Encoding")
        encoding = encoding.decode("ascii", "replace") if isinstance(encoding, bytes) else encoding
        self._datasets[variable] = entry = (dataset, dtype, {} if encoding is None else {"_Encoding": encoding})
        return entry

    def values(self, variable: str, box: Box) -> np.ndarray:
        """Return the values of a box; raises the errors of h5py."""
        dataset, dtype, encoding = self.dataset(variable)
        if is_external(dataset.id):
            refuse_remote(self._path, f"variable {variable!r} has its values in other files")
        if samples_dtype(dataset) is not None:
            return self._rows(variable, box)
        if dataset.shape is None:
            # A dataset without a dataspace is empty.
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
        """Return all values of a variable, None if they lie in other files or are too large for a scan."""
        dataset, dtype, _ = self.dataset(variable.name)
        if is_external(dataset.id) or not is_scannable(dataset.shape or (), dtype.itemsize):
            return None
        return self.values(variable.name, full_box(variable.shape))

    def _rows(self, variable: str, box: Box) -> np.ndarray:
        """Return a box of the samples or of the row sizes of a variable-length variable."""
        dataset, dtype, _ = self.dataset(variable)
        offsets = self._offsets.get(dataset.name)
        if offsets is None:
            offsets = self._offsets[dataset.name] = offsets_of(sizes_of(self._path, dataset))
        if dataset.name.rpartition("/")[2].removeprefix(NOT_COORDINATE) == variable.rpartition("/")[2]:
            return read_samples(dataset, dtype, offsets, box).astype(dtype.newbyteorder("="), copy=False)
        return select_sizes(np.diff(offsets), box[0])

    def contiguous(self, variable: str) -> tuple[np.dtype[Any], int, tuple[int, ...]] | None:
        """Return dtype, offset and shape of a contiguous variable without filters, None for other variables."""
        dataset, dtype, _ = self.dataset(variable)
        if (
            not dataset.size
            or samples_dtype(dataset) is not None
            or not is_contiguous(dataset)
            or not has_numpy_layout(dataset, dtype)
        ):
            return None
        offset = offset_of(dataset)
        return None if offset is None else (dtype, offset, dataset.shape)

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return the chunk index of a variable, or None if `ChunkIndex` cannot describe its storage."""
        dataset, dtype, _ = self.dataset(variable)
        return None if samples_dtype(dataset) is not None else chunk_index_through_h5py(self._path, dataset, dtype)

    def external_files(self, variable: str) -> list[Source]:
        """Return the sources of external and virtual storage, resolved as HDF5 does: against the folder of this file."""
        return sources_of(self._path, self.dataset(variable)[0])

    def close(self) -> None:
        """Close the file."""
        # Closing the FileID is faster than File.close, which searches for open datasets. Here no dataset is open.
        self._datasets.clear()
        self._file.id.close()


def _check_text(dataset: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Raise ValueError for fixed-length text that needs far more memory than the stored bytes justify."""
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind == "S" and not is_plausible(size, dataset.id.get_storage_size()):
        raise ValueError(f"{size} bytes of text are declared, but hardly any are stored; rewrite the file")


def _read_box(dataset: Any, box: Box) -> np.ndarray:
    """Read a box; elements beyond the end along an unlimited dimension were never written and have the fill value."""
    inner = tuple(slice(min(s.start, n), min(s.stop, n), s.step) for s, n in zip(box, dataset.shape, strict=True))
    if inner == box:
        return np.asarray(dataset[box])
    for selection, n, limit in zip(box, dataset.shape, dataset.maxshape, strict=True):
        if selection.stop > n and limit is not None:
            raise ValueError(f"only {n} of {selection.stop} elements exist; the file was modified, open it again")
    # netCDF-4 lets one variable lengthen a dimension without extending the others along it.
    out = np.full(counts(box), dataset.fillvalue, dataset.dtype)
    written = tuple(slice(0, n) for n in counts(inner))
    out[written] = dataset[inner]
    return out


def scan_by_library(path: str) -> Structure:
    """Return the structure of a file, scanned by h5py."""
    make_ready(path)
    with LIBRARY_LOCK, naming_errors(path), opened(path) as file:
        label = "netCDF4" if "_NCProperties" in file.attrs else "HDF5"
        return scan_structure(path, file, label, H5pyFile(path, file).scanned)
