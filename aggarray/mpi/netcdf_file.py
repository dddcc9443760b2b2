"""NetCDF-4 file that many processes write: one places encoded chunks.

The file is written beside its target and renamed at the end. To an existing file variables are added in a copy, which then
replaces it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from math import prod
from types import TracebackType
from typing import Any

import numpy as np

from aggarray.arrays.history import history_line, names_with_shapes
from aggarray.arrays.local import LocalArray
from aggarray.arrays.master import MasterArray
from aggarray.arrays.subarray import SubArray
from aggarray.dataclass import replace
from aggarray.errors import ExchangeError, FormatError
from aggarray.formats import scan
from aggarray.index.netcdf import updated
from aggarray.index.saving import may_be_replaced
from aggarray.mpi.encoded_chunks import Batch, ChunkPlacer, place_chunks, send_chunks, split_into_batches
from aggarray.mpi.groups import convert_errors
from aggarray.mpi.metadata import ArrayMetadata
from aggarray.mpi.ordered_tasks import OrderedTasks
from aggarray.mpi.stored_form import StoredArray, StoredForm, netcdf_form
from aggarray.mpi.transport.base import Link
from aggarray.mpi.write_errors import convert_write_errors
from aggarray.options import get_options
from aggarray.output.chunks import Position, chunk_in, full_chunk, positions_in
from aggarray.output.compression import NONE, Compression
from aggarray.output.layout import ExtractLayout, Variable, lay_out
from aggarray.output.netcdf_file import KINDS, check_compression, chunk_placer, create_file, encode
from aggarray.output.source_files import replace_netcdf_list, stored_list
from aggarray.storage.atomic import replace_atomically


class NetCDFFile:
    """NetCDF-4 file at a path, and an array to add under a name.

    A context manager that removes unfinished work. ``work``: the unfinished file, on process 0.
    """

    def __init__(self, path: str, name: str, metadata: ArrayMetadata, compression: Compression) -> None:
        self._path, self._name, self._metadata, self._compression = path, name, metadata, compression
        self._real = os.path.realpath(path)
        self._stack = ExitStack()
        self.work = ""
        self._variables: list[Variable] = []

    def __enter__(self) -> NetCDFFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # Without an error, `finish` has renamed the file.
        self._stack.__exit__(kind, error, trace)

    def form(self, section: LocalArray) -> StoredForm:
        """Return the form in which the values of a section are stored."""
        return netcdf_form(section, self._metadata)

    def create(self, stored: StoredArray, labels: Sequence[np.ndarray | None]) -> str:
        """Create the file with its coordinates; return the unfinished file.

        ``labels``: for each dimension its existing positions, None for all. Other writers of the file wait. Raises
        ExchangeError if the path is not such a file, or has conflicting variables.
        """
        with convert_write_errors(self._path, self._name):
            if os.path.lexists(self._path) and not os.path.isfile(self._path):
                raise ExchangeError("exists and is not a netCDF-4 file", path=self._path, hint="give another path")
            check_compression(self._compression, self._path)
            os.makedirs(os.path.dirname(self._real), exist_ok=True)
            # promise: mpi-netcdf-atomic
            self.work = self._stack.enter_context(replace_atomically(self._real))
            layout = self._layout(stored, labels)
            if extend := os.path.exists(self._real):
                _check_closed(self._real)
                self._adapt(layout)
                shutil.copyfile(self._real, self.work)
            create_file(layout, self.work, self._compression, extend)
            self._variables = layout.variables
            earlier = self._earlier_list() if extend else []
            if {*(files := [*earlier, *self._metadata.source_files()])} > {*earlier}:
                replace_netcdf_list(self.work, files)
        return self.work

    def _earlier_list(self) -> Sequence[tuple[str, str]]:
        """Return the list of files that the file has."""
        return stored_list(self._real, [v.name for v in scan(self._real).variables]) or ()

    def _layout(self, stored: StoredArray, labels: Sequence[np.ndarray | None]) -> ExtractLayout:
        """Return the layout of a new file; the array is the last variable."""
        (shape, chunks, form), metadata = stored, self._metadata
        keys = {d: slice(None) if own is None else own for d, own in zip(metadata.dimensions, labels, strict=True)}
        coords = {
            key: c.lazy[tuple(keys.get(d, slice(None)) for d in c.dimensions)] if set(c.dimensions) & keys.keys() else c
            for key, c in metadata.coords.items()
            if key != self._name
        }
        # An array of these parameters, whose values nothing reads and which take no memory.
        values = np.broadcast_to(np.zeros((), form.dtype), shape)
        piece = SubArray.from_array(values, dimensions=metadata.dimensions)
        array = MasterArray.from_subarrays(
            [([(0, size) for size in shape], piece)], dimensions=metadata.dimensions, shape=shape, name=self._name
        )
        attrs = {**metadata.attributes(), **form.attributes}
        array = replace(array, attrs=attrs, file_attrs=metadata.file_attrs, coords=coords)
        layout = convert_errors(lambda: lay_out([array], KINDS, self._path))
        variable = layout.variables[-1]
        if variable.dimensions == (self._name,):
            variable.name = self._name
        if variable.name != self._name:
            what = f"the name {self._name!r} is invalid in netCDF, or that of a dimension"
            raise ExchangeError(what, path=self._path, hint=f"give another, such as {variable.name!r}")
        variable.chunks, variable.fill = chunks or None, form.fill
        line = history_line(f"aggarray.mpi.write of {names_with_shapes([array])}")
        history = "\n".join(filter(None, [line, str(layout.attributes.pop("history", ""))]))
        layout.attributes = {n: v for n, v in layout.attributes.items() if n != "tracking_id"} | {"history": history}
        return layout

    def _adapt(self, layout: ExtractLayout) -> None:
        """Remove from a layout what the file has; ExchangeError for conflicts."""
        try:
            structure = scan(self._real)
        except FormatError as error:
            raise ExchangeError("exists and is not a netCDF-4 file", path=self._path, hint="give another path") from error
        if structure.format != "netCDF4" or may_be_replaced(self._real):
            what = "is an index" if structure.format == "netCDF4" else f"exists and is a {structure.format} file"
            raise ExchangeError(what, path=self._path, hint="give another path")
        stored = {v.name: v for v in structure.variables}
        for dimension, size in (structure.sizes or {}).items():
            if layout.dimensions.get(dimension, size) != size:
                reason = f"dimension {dimension!r} has size {layout.dimensions[dimension]}, that of the file has size {size}"
                raise ExchangeError(reason, path=self._path, variable=self._name, hint="give another path")
        if layout.variables[-1].name in stored or any(name == self._name for name, _ in structure.skipped):
            raise ExchangeError("already exists", path=self._path, variable=self._name, hint="give another name or path")
        layout.variables = [v for v in layout.variables if not (v.name in stored and self._has(stored[v.name], v))]
        layout.attributes.clear()

    def _has(self, stored: Any, variable: Variable) -> bool:
        """Return True if the file has a coordinate; ExchangeError if it differs."""
        same = stored.dimensions == variable.dimensions and stored.shape == variable.shape
        attributes = ("units", "calendar")
        if same and all(stored.attrs.get(n) == variable.attributes.get(n) for n in attributes):
            values, own = SubArray.from_file(self._real, variable.name).read(), variable.source[...]
            if np.array_equal(values, own, equal_nan=values.dtype.kind == own.dtype.kind == "f"):
                return True
        reason = f"the stored coordinate {variable.name!r} differs"
        raise ExchangeError(reason, path=self._path, variable=self._name, hint="give another path")

    def put(self, link: Link, region: tuple[slice, ...] | None, values: np.ndarray, stored: StoredArray) -> None:
        """Encode the chunks of a block; process 0 places all. Collective.

        ``region``: None if this process has no block.
        """
        positions = list(positions_in(region, stored.chunks)) if region is not None and values.size else []
        compression = self._compression if stored.chunks else Compression(NONE, 0)

        def encoded(batch: Sequence[Position]) -> Batch:
            numbers, chunks = [], []
            for position in batch:
                own = stored.form.convert(chunk_in(values, region or (), position, stored.chunks))
                numbers.append(int(np.ravel_multi_index(position, stored.grid)) if position else 0)
                chunks.append(encode(full_chunk(own, stored.chunks, stored.form.fill), compression))
            return Batch(tuple(numbers), tuple(chunks))

        calls = (
            partial(encoded, batch) for batch in split_into_batches(positions, prod(stored.chunks) * stored.form.dtype.itemsize)
        )
        with OrderedTasks(calls, get_options().threads) as tasks:
            if link.rank:
                send_chunks(link, tasks)
            else:
                with convert_write_errors(self._path, self._name):
                    place_chunks(link, tasks, self._open_placer(stored))

    @contextmanager
    def _open_placer(self, stored: StoredArray) -> Iterator[ChunkPlacer]:
        """Open the file and place coordinates; provide the placer of others."""
        *coordinates, array = self._variables
        # Read before the lock is acquired: threads that read some of them need it.
        encoded = [(variable, list(self._encoded(variable))) for variable in coordinates if variable.chunks is not None]
        with updated(self.work) as file:
            for variable, chunks in encoded:
                place = chunk_placer(file, variable)
                for position, chunk in chunks:
                    place(position, chunk)
            if array.chunks is None:
                yield partial(_put_scalar, file[array.name])
            else:
                place = chunk_placer(file, array)
                yield lambda number, chunk: place(tuple(map(int, np.unravel_index(number, stored.grid))), chunk)

    def _encoded(self, variable: Variable) -> Iterator[tuple[Position, bytes]]:
        sides = variable.chunks or ()
        for position in variable.positions():
            box = tuple(slice(n * side, (n + 1) * side) for n, side in zip(position, sides, strict=True))
            yield position, encode(full_chunk(variable.values(box), sides, variable.fill), self._compression)

    def finish(self) -> None:
        """Rename the complete file."""
        with convert_write_errors(self._path, self._name):
            self._stack.close()


def _check_closed(path: str) -> None:
    """Raise ExchangeError if HDF5 writes a file, which a copy would replace."""
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ExchangeError("is open for writing", path=path, hint="close it first") from error
        except OSError:
            pass  # a file system without locks


def _put_scalar(dataset: Any, _number: int, chunk: Any) -> None:
    dataset[()] = np.frombuffer(chunk, dataset.dtype)[0]
