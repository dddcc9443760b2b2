"""HDF5 variables that h5py reads because the metadata reader cannot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aggarray.codecs import decode, decode_at_most, known, most_decoded
from aggarray.errors import FormatError, NotFoundError
from aggarray.formats.base import LIBRARY_LOCK, Box, Structure, Variable, counts, full_box, naming_errors, stored_values
from aggarray.formats.hdf5.external import Source, sources_of
from aggarray.formats.hdf5.h5py_files import is_external, leads_outside, open_file
from aggarray.formats.hdf5.h5py_scan import plain_dtype, scan_structure
from aggarray.formats.hdf5.metadata.dimensions import NOT_COORDINATE
from aggarray.formats.hdf5.metadata.messages import filter_of
from aggarray.formats.hdf5.rows import read_samples, rows_of, samples_dtype, select_sizes, sizes_of
from aggarray.formats.hdf5.virtual_mapping import VirtualLayout, VirtualMapping, mappings_of
from aggarray.formats.limits import MOST_INFLATED, is_plausible, is_scannable
from aggarray.memory.rows import offsets_of
from aggarray.storage.files import make_ready, refuse_remote
from aggarray.storage.urls import is_remote

#: Decoded size up to which a chunk is not checked: bytes, and multiples of the expected size.
_FREE, _TIMES = 1 << 26, 64
#: Bound on the size of a chunk encoded by unknown filters: multiples of the raw size, and additional bytes.
_ENCODED, _SLACK = 8, 1 << 16


class H5pyFile:
    """HDF5 file opened with h5py; hold the lock around every call."""

    def __init__(self, path: str, file: Any):
        self._path, self._file = path, file
        self._datasets: dict[str, tuple[Any, np.dtype[Any], dict[str, Any]]] = {}
        self._offsets: dict[str, np.ndarray] = {}
        self._checked: set[str] = set()

    @property
    def is_open(self) -> bool:
        """Return whether the file is open: `open_file` closes earlier versions."""
        return bool(self._file)

    def dataset(self, variable: str) -> tuple[Any, np.dtype[Any], dict[str, Any]]:
        """Return dataset, stored dtype and, as an attribute, text encoding."""
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
            hint = f"the root group holds {', '.join(self._file)}"
            raise NotFoundError(f"no variable {variable!r}", path=self._path, variable=variable, hint=hint)
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
        if is_remote(self._path) and is_external(dataset.id):
            refuse_remote(self._path, f"variable {variable!r} has its values in other files")
        if samples_dtype(dataset) is not None:
            return self._rows(variable, box)
        if dataset.shape is None:
            # A dataset without a dataspace is empty.
            return stored_values(np.empty(counts(box), dtype), {})
        joined = len(box) < len(dataset.shape)
        if joined:
            box = (*box, slice(0, dataset.shape[-1], 1))
        size = math.prod(counts(box)) * dtype.itemsize
        # promise: hdf5-text-memory
        if dtype.kind == "S" and not is_plausible(size, dataset.id.get_storage_size()):
            raise ValueError(f"{size} bytes of text are declared, far more than are stored; rewrite the file")
        if variable not in self._checked:
            check_decoded_sizes(dataset.id)
            self._checked.add(variable)
        values = _read_box(dataset, box)
        values = values if dtype.kind in "SOT" else values.astype(dtype, copy=False)
        return stored_values(values, encoding, joined, f"{self._path}, variable {variable!r}")

    def scanned(self, variable: Variable) -> np.ndarray | None:
        """Return all values, None if external or too large for a scan."""
        dataset, dtype, _ = self.dataset(variable.name)
        if is_external(dataset.id) or not is_scannable(dataset.shape or (), dtype.itemsize):
            return None
        return self.values(variable.name, full_box(variable.shape))

    def _rows(self, variable: str, box: Box) -> np.ndarray:
        dataset, dtype, _ = self.dataset(variable)
        offsets = self._offsets.get(dataset.name)
        if offsets is None:
            offsets = self._offsets[dataset.name] = offsets_of(sizes_of(self._path, dataset))
        if dataset.name.rpartition("/")[2].removeprefix(NOT_COORDINATE) == variable.rpartition("/")[2]:
            return read_samples(dataset, dtype, offsets, box).astype(dtype.newbyteorder("="), copy=False)
        return select_sizes(np.diff(offsets), box[0])

    def check(self, variable: str) -> None:
        """Raise NotFoundError or FormatError for an unreadable variable."""
        self.dataset(variable)

    def external_files(self, variable: str) -> list[Source]:
        """Return the sources of external and virtual storage, resolved."""
        return sources_of(self._path, self.dataset(variable)[0])

    def mappings(self, variable: str) -> list[VirtualMapping]:
        """Return the mappings of virtual storage."""
        return mappings_of(self.dataset(variable)[0])

    def virtual_layout(self, variable: str) -> VirtualLayout:
        """Return shape and mappings of virtual storage."""
        return VirtualLayout(self.dataset(variable)[0].shape, self.mappings(variable))

    def close(self) -> None:
        """Close the file."""
        # Closing the FileID is faster than File.close, which searches for open datasets. Here no dataset is open.
        self._datasets.clear()
        if self.is_open:
            self._file.id.close()


def _read_box(dataset: Any, box: Box) -> np.ndarray:
    """Read a box, with the fill value beyond the end of the dataset."""
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


def check_decoded_sizes(dataset: Any) -> None:
    """Raise ValueError if a chunk decodes to an unexpected size."""
    import h5py

    properties = dataset.get_create_plist()
    if properties.get_layout() != h5py.h5d.CHUNKED or not properties.get_nfilters():
        return
    steps = [properties.get_filter(n) for n in range(properties.get_nfilters())]
    filters = [filter_of(code, tuple(int(v) for v in values)) for code, _, values, _ in steps]
    # Decoding starts with the known filters after the last unknown one.
    first = max([n + 1 for n, step in enumerate(filters) if step is None or not known((step,))], default=0)
    known_filters = tuple(f for f in filters[first:] if f is not None)
    if not known_filters:
        return
    raw = math.prod(properties.get_chunk()) * dataset.get_type().get_size()
    ratios = [most_decoded(known_filters, stored) for stored in (0, 1)]
    growth = MOST_INFLATED ** len(known_filters) if ratios[0] is None or ratios[1] is None else ratios[1] - ratios[0]
    least = max(_FREE, _TIMES * raw) // min(growth, MOST_INFLATED ** len(known_filters))
    suspect: list[tuple[int, ...]] = []

    def note(chunk: Any) -> None:
        """Record a chunk that is large enough to need a check."""
        if chunk.size > least:
            suspect.append(chunk.chunk_offset)

    # promise: hdf5-chunk-decoded-size
    dataset.chunk_iter(note)
    for start in suspect:
        mask, packed = dataset.read_direct_chunk(start)
        if first and mask & ((1 << first) - 1) != (1 << first) - 1:
            # promise: hdf5-known-filter-prefix
            decode_at_most(known_filters, packed, _ENCODED * raw + _SLACK, mask >> first)
        else:
            decode(known_filters, packed, raw, mask >> first)


def scan_by_library(path: str) -> Structure:
    """Return the structure of a file, scanned by h5py."""
    make_ready(path)
    with LIBRARY_LOCK, naming_errors(path), open_file(path) as file:
        label = "netCDF4" if "_NCProperties" in file.attrs else "HDF5"
        return scan_structure(path, file, label, H5pyFile(path, file).scanned)
