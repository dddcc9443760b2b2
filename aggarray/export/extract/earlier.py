"""The extract that an append continues: its form and its values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, cast

import numpy as np

from aggarray.arrays.subarray import SubArray
from aggarray.dataclass import NamedTuple, dataclass, fields
from aggarray.errors import LIBRARY_ERRORS, AggregationError
from aggarray.export.extract import zarr_store
from aggarray.export.extract.target import stored_fingerprint
from aggarray.formats import scan
from aggarray.formats.base import LIBRARY_LOCK, h5py_file
from aggarray.formats.base import Variable as StoredVariable
from aggarray.output import netcdf_file
from aggarray.output.chunks import Position
from aggarray.output.compression import NONE, Compression
from aggarray.output.layout import ExtractLayout, StoredForm, Variable
from aggarray.output.source_files import TRACKING_ID, stored_list
from aggarray.partition.block_shapes import in_blocks
from aggarray.scan.roles import SOURCE_FILE

#: Elements that are compared at a time.
_BLOCK = 1 << 22
_REPEAT = "repeat the options of the extract that exists, or replace it with exists='overwrite'"


class Growth(NamedTuple):
    """The dimension that grows, None if nothing is new, and its earlier size."""

    dimension: str | None
    size: int


class EarlierExtract:
    """An extract of `path`, whose values are kept when a layout continues it.

    Raises AggregationError if `extract` did not write it. ``growth``: set by `continue_`.
    """

    def __init__(self, path: str) -> None:
        mark = stored_fingerprint(path)
        if mark is None:
            raise AggregationError("cannot be appended to: was not extracted by aggarray", path=path, hint="give another name")
        self.path, self.fingerprint, self.growth = path, mark, Growth(None, 0)
        self._is_zarr = path.lower().endswith(".zarr")
        structure = scan(path)
        self.attributes: Mapping[str, Any] = structure.attrs
        self._variables: dict[str, StoredVariable] = {v.name: v for v in structure.variables}
        try:
            self._forms: Mapping[str, StoredForm] = (zarr_store if self._is_zarr else netcdf_file).stored_forms(path)
        except LIBRARY_ERRORS as error:
            what = "cannot be appended to: its metadata are not those of an extract"
            raise AggregationError(f"{what} ({type(error).__name__}: {error})", path=path, hint=_REPEAT) from error
        self._readers: dict[str, SubArray] = {}
        self._kept: set[str] = set()
        self._stack, self._file = ExitStack(), cast(Any, None)

    @property
    def digest(self) -> str:
        """What the chunks of an unfinished append depend on."""
        forms = repr(sorted((name, form.chunk, form.shards) for name, form in self._forms.items()))
        content = f"{self.fingerprint} {self.growth} {forms}".encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def close(self) -> None:
        """Close the file whose chunks were copied."""
        with LIBRARY_LOCK:
            self._stack.close()

    # What is kept

    def starts(self, variable: Variable) -> tuple[int, ...]:
        """Return where the first chunk or shard begins that is not kept."""
        if not self._keeps(variable):
            return (0,) * len(variable.shape)
        starts = [0] * len(variable.shape)
        if self.growth.dimension not in variable.dimensions:
            return variable.shape
        axis = variable.dimensions.index(self.growth.dimension)
        starts[axis] = self.growth.size // variable.stored[axis] * variable.stored[axis]
        return tuple(starts)

    def has(self, variable: Variable, position: Position) -> bool:
        """Return whether a chunk or shard is complete in the earlier extract."""
        if not self._keeps(variable):
            return False
        if self.growth.dimension not in variable.dimensions:
            return True
        axis = variable.dimensions.index(self.growth.dimension)
        return (position[axis] + 1) * variable.stored[axis] <= self.growth.size

    def _keeps(self, variable: Variable) -> bool:
        return variable.name in self._kept

    def piece(self, variable: Variable) -> tuple[int, ...] | None:
        """Return the chunk shape of a small variable of a Zarr store, which stays."""
        form = self._forms.get(variable.name) if self._is_zarr else None
        return None if form is None else form.chunk

    def chunk(self, variable: Variable, position: Position) -> tuple[bytes, int]:
        """Return the bytes of a netCDF chunk, and the mask of filters left out."""
        if self._file is None:
            self._file = self._stack.enter_context(h5py_file(self.path, "r"))
        offset = tuple(n * side for n, side in zip(position, variable.stored, strict=True))
        mask, content = self._file[variable.name].id.read_direct_chunk(offset)
        return content, mask

    def stored_values(self, variable: Variable, box: Sequence[slice]) -> np.ndarray:
        """Return the stored values of a box, with missing ones filled."""
        reader = self._readers.get(variable.name)
        if reader is None:
            reader = self._readers[variable.name] = SubArray.from_file(self.path, variable.name)
        values = reader.read(tuple(box), masked=True)
        filled = np.ma.getdata(values) if variable.fill is None else np.ma.filled(values, variable.fill)
        return np.asarray(filled)

    def source_files(self) -> list[tuple[str, str]] | None:
        """Return address and tracking_id of each file, None without a list."""
        return stored_list(self.path, self._variables)

    def tracking_ids(self) -> list[str]:
        """Return the identifiers of the files of the earlier extract."""
        listed = [identifier for _, identifier in self.source_files() or () if identifier]
        for name, variable in self._variables.items():
            if variable.dimensions == (SOURCE_FILE,) and "/" not in name:  # as earlier versions wrote them
                listed = [str(i) for i in SubArray.from_file(self.path, name).read(...).tolist()]
        return listed or [i for i in str(self.attributes.get(TRACKING_ID, "")).split("\n") if i]

    # Whether a layout continues it

    def continue_(
        self,
        layout: ExtractLayout,
        data: Sequence[str],
        compression: Compression | None,
        sizes: Mapping[str, Mapping[str, int]],
    ) -> Compression:
        """Adapt a layout to the earlier form; return the compression.

        ``data``: names of the variables of which only the last values are compared, the others entirely; ``compression``:
        None if it was not given; ``sizes``: the given sizes of "chunks" and "shards". Raises AggregationError unless the layout
        continues this extract along one dimension.
        """
        own = {name for name, v in self._variables.items() if v.dimensions != (SOURCE_FILE,)}
        names = {v.name for v in layout.variables}
        for which, only in (("the output", own - names), ("the selection", names - own)):
            if only:
                raise self._error(f"only {which} has the variables {', '.join(sorted(only))}")
        for variable in layout.variables:
            self._check_type(variable)
        self.growth = self._find_growth(layout)
        used = self._compression(compression)
        for n, variable in enumerate(layout.variables):
            self._check_sizes(variable, sizes)
            values: dict[str, Any] = {f.name: getattr(variable, f.name) for f in fields(variable)}
            layout.variables[n] = continued = _Continued(**values, earlier=self)
            self._adopt(continued, used)
            self._compare(continued, variable.name in data)
        return used

    def _check_type(self, variable: Variable) -> None:
        stored = self._variables[variable.name]
        pairs: list[tuple[str, Any, Any]] = [
            ("dimensions", ", ".join(stored.dimensions), ", ".join(variable.dimensions)),
            ("the type", stored.dtype, variable.dtype.newbyteorder("=")),
        ]
        pairs += [(name, stored.attrs.get(name), variable.attributes.get(name)) for name in ("units", "calendar")]
        for what, before, now in pairs:
            if before != now:
                raise self._error(f"{what} differ{'s' * (what == 'the type')}: {before} in the output, {now} now", variable)

    def _find_growth(self, layout: ExtractLayout) -> Growth:
        old = {d: n for v in layout.variables for d, n in self._sizes(v).items()}
        changed = {d: (old[d], n) for d, n in layout.dimensions.items() if d in old and old[d] != n}
        for dimension, (before, now) in changed.items():
            if now < before or len(changed) > 1:
                sizes = "; ".join(f"{d} {n[0]} in the output, {n[1]} now" for d, n in changed.items())
                what = "the selection is shorter" if now < before else "the sizes of several dimensions differ"
                raise self._error(f"{what}: {sizes}")
            return Growth(dimension, before)
        return Growth(None, 0)

    def _sizes(self, variable: Variable) -> dict[str, int]:
        return dict(zip(variable.dimensions, self._variables[variable.name].shape, strict=True))

    def _compression(self, given: Compression | None) -> Compression:
        """Return the compression; AggregationError if another was given."""
        others = (form.compression for form in self._forms.values() if form.compression.level)
        used = next(others, Compression(NONE, 0))
        if given is not None and given != used:
            raise AggregationError(f"compress={str(given)!r}: the output has {used}", path=self.path, hint=_REPEAT)
        return used

    def _check_sizes(self, variable: Variable, sizes: Mapping[str, Mapping[str, int]]) -> None:
        form = self._forms[variable.name]
        if variable.chunks is None:
            return
        for argument, now, stored in (("chunks", variable.chunks, form.chunk), ("shards", variable.shards, form.shards)):
            for d, name in enumerate(variable.dimensions):
                size = sizes[argument].get(name)
                if size is None or (size == -1 and name == self.growth.dimension):
                    continue
                if stored is None or now is None or stored[d] != now[d]:
                    before = "no" if stored is None else stored[d]
                    what = f"{argument}={dict([(name, size)])!r}: the output has {before}"
                    raise AggregationError(what, path=self.path, variable=variable.name, hint=_REPEAT)

    def _adopt(self, variable: Variable, used: Compression) -> None:
        """Give a variable the chunks and the missing value of the earlier extract."""
        form = self._forms[variable.name]
        is_small = variable.dtype.kind == "T" or not variable.shape or form.chunk is None
        is_small |= bool(used.level) and not form.compression.level
        if not is_small:
            variable.chunks, variable.shards = form.chunk, form.shards
        elif self._is_zarr:
            variable.chunks, variable.shards, variable.piece = None, None, form.chunk
        if self._is_zarr or not is_small:
            self._kept.add(variable.name)
        if form.fill is None and variable.fill is not None and variable.dtype.kind == "f":
            return  # NaN: nothing in the output is missing
        same = form.fill == variable.fill or (variable.dtype.kind == "f" and form.fill is not None)
        if not same and variable.fill is not None:
            raise self._error(
                f"the missing value differs: {'none' if form.fill is None else form.fill} in the output, {variable.fill} now",
                variable,
            )
        variable.fill = form.fill
        variable.attributes |= {} if form.fill is None else {"_FillValue": form.fill}

    def _compare(self, variable: _Continued, is_data: bool) -> None:
        """Raise AggregationError if values differ: all, of data the last ones."""
        shape = self._variables[variable.name].shape
        first = [0] * len(shape)
        if is_data and self.growth.dimension in variable.dimensions:
            axis = variable.dimensions.index(self.growth.dimension)
            first[axis] = max(0, shape[axis] - 1)
        for box in _boxes(first, shape, variable):
            before, now = self.stored_values(variable, box), variable.new_values(box)
            equal = before == now if before.dtype.kind not in "fc" else (before == now) | (np.isnan(before) & np.isnan(now))
            if not np.all(equal):
                at = tuple(int(n) for n in np.argwhere(~np.asarray(equal))[0])
                where = ", ".join(f"{d}={n + s.start}" for d, n, s in zip(variable.dimensions, at, box, strict=True))
                what = f"values differ at {where or 'the only position'}: {before[at]} in the output, {now[at]} now"
                raise self._error(what, variable)

    def _error(self, what: str, variable: Variable | None = None) -> AggregationError:
        name = None if variable is None else variable.name
        return AggregationError(f"cannot be appended to: {what}", path=self.path, variable=name, hint=_REPEAT)


@dataclass(slots=True, eq=False)
class _Continued(Variable):
    """Variable whose values of the earlier positions are those that it has."""

    earlier: Any = None  # an EarlierExtract; fields without a default cannot follow those of Variable

    def new_values(self, key: Any) -> np.ndarray:
        """Return the values of a box, all of the source."""
        return Variable.values(self, key)

    def values(self, key: Any) -> np.ndarray:
        """Return the values of a box: of the earlier extract, and new ones."""
        dimension, size = self.earlier.growth
        box = [slice(0, n) for n in self.shape] if key is ... else list(key)
        if dimension not in self.dimensions:
            return self.new_values(key)
        axis = self.dimensions.index(dimension)
        span = box[axis]
        if span.start >= size:
            return self.new_values(key)
        box[axis] = slice(span.start, min(span.stop, size))
        before: np.ndarray = self.earlier.stored_values(self, box)
        if span.stop <= size:
            return before
        box[axis] = slice(size, span.stop)
        return np.concatenate([before, self.new_values(tuple(box))], axis, dtype=self.dtype)


def _boxes(first: Sequence[int], shape: Sequence[int], variable: Variable) -> Iterator[tuple[slice, ...]]:
    """Yield boxes that cover an array from a position."""
    sizes = [n - start for n, start in zip(shape, first, strict=True)]
    sides = [min(side, max(n, 1)) for side, n in zip(variable.stored, sizes, strict=True)]
    for box in in_blocks(sizes, sides, _BLOCK):
        yield tuple(slice(s.start + start, s.stop + start) for s, start in zip(box, first, strict=True))
