"""Layout of a file: its variables, dimensions, attributes and chunks.

Names, shared coordinates and attributes that refer to variables are resolved as for index files (`index.container`). Nothing
is written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.cf.units import is_reference_time
from aggarray.dataclass import NamedTuple, dataclass, field
from aggarray.errors import AggarrayError, AggregationError
from aggarray.index.container import Container, common_attributes, plain_attributes
from aggarray.memory.texts import Texts
from aggarray.output.chunks import Position, positions_in
from aggarray.output.compression import Compression
from aggarray.partition.block_shapes import chunk_like
from aggarray.read.chunk_index import find_chunk_index

#: Arrays of fewer bytes than this are stored in one piece, uncompressed, unless a compression is given.
WHOLE = 1 << 16
#: Least elements of the chunk of a small variable that may grow, so that appending to it makes few.
_LEAST_PIECE = 512


@dataclass(slots=True, eq=False)
class Variable:
    """Variable to write.

    ``chunks``: their shape, None for a small variable, which is stored uncompressed; ``fill``: missing value; ``shards``: shape
    of the shards of chunks, None without; ``piece``: chunk shape of a small variable, None for its shape.
    """

    name: str
    dimensions: tuple[str, ...]
    source: MasterArray
    chunks: tuple[int, ...] | None
    fill: Any
    attributes: dict[str, Any] = field(default_factory=dict)
    shards: tuple[int, ...] | None = None
    piece: tuple[int, ...] | None = None

    @property
    def stored(self) -> tuple[int, ...]:
        """Shape of what is stored together: a shard, a chunk, or all values."""
        return self.shards or self.chunks or self.piece or tuple(max(n, 1) for n in self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size along each dimension."""
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the values."""
        return self.source.dtype

    def setncatts(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes, as a variable of netCDF4 does."""
        self.attributes.update(attributes)

    def positions(self) -> Iterator[Position]:
        """Yield the positions of the shards or chunks, in C order."""
        return positions_in([slice(0, size) for size in self.shape], self.stored)

    def values(self, key: Any) -> np.ndarray:
        """Return the values of a box, with missing ones filled."""
        if self.fill is None or self.dtype.kind != "f" or np.isnan(self.fill):
            return self.source[key]
        # NaN may be a value if the files have another missing value.
        return np.ma.filled(self.source.read(key, masked=True), self.fill)


class StoredForm(NamedTuple):
    """How an existing variable is stored.

    ``chunk``: None for one without chunks; ``fill``: its missing value, None without.
    """

    chunk: tuple[int, ...] | None
    shards: tuple[int, ...] | None
    compression: Compression
    fill: Any

    @property
    def stored(self) -> tuple[int, ...] | None:
        """Shape of what is stored together."""
        return self.shards or self.chunk


@dataclass(slots=True, eq=False)
class ExtractLayout:
    """Dataset to be written, with the methods that `Container` calls."""

    dimensions: dict[str, int] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)

    def setncatts(self, attributes: Mapping[str, Any]) -> None:
        """Add global attributes."""
        self.attributes.update(attributes)

    def createDimension(self, name: str, size: int) -> None:  # noqa: N802 - a method of netCDF4
        """Add a dimension."""
        self.dimensions[name] = size


class _LayoutContainer(Container):
    """Container that records variables in a layout.

    ``kinds``: of dtypes; "e": float16.
    """

    def __init__(self, layout: ExtractLayout, kinds: str, whole: int) -> None:
        super().__init__(layout, lambda references: (Texts.of(()), np.zeros(0, np.int64)))
        self._kinds, self._whole = kinds, whole

    def global_attributes(self, arrays: Sequence[MasterArray]) -> dict[str, Any]:
        """Return the attributes that all arrays have with equal values."""
        return {**plain_attributes(common_attributes(arrays)), "Conventions": self.conventions}

    def name_dimensions(self, arrays: Sequence[MasterArray]) -> None:
        """Name the dimensions of all arrays before other variables.

        A scalar coordinate, such as the time of a mean, then takes no name from a dimension of another array.
        """
        for array in arrays:
            self._dimension_names(array, self._keys(array), dict(zip(array.dimensions, array.shape, strict=True)))
        self.left_out.clear()

    def reason(self, array: MasterArray) -> None:
        """Return None: all arrays are written by value."""
        return None

    def _unfit(self, array: MasterArray) -> str | None:
        supported = array.dtype.kind in self._kinds and (array.dtype != np.float16 or "e" in self._kinds)
        return None if supported else f"the format has no type for {array.dtype}"

    def aggregated(self, array: MasterArray, name: str, dimensions: Sequence[str]) -> Variable:
        variable = Variable(name, tuple(dimensions), array, _chunks(array, self._whole), fill_of(array))
        self.dataset.variables.append(variable)
        return variable

    _valued = aggregated

    def _coordinates(self, array: MasterArray) -> dict[str, str]:
        whole, self._whole = self._whole, WHOLE
        try:
            return super()._coordinates(array)
        finally:
            self._whole = whole


def lay_out(
    arrays: Sequence[MasterArray], kinds: str, where: str, whole: int | None = None, dimensions_first: bool = False
) -> ExtractLayout:
    """Return the layout of arrays and their coordinates.

    ``kinds``: the supported kinds of dtypes; ``whole``: arrays of fewer bytes are stored in one piece, uncompressed (None:
    `WHOLE`, as for coordinates); ``dimensions_first``: see `_LayoutContainer.name_dimensions`. Raises AggregationError, with
    ``where`` as its path, for unsupported arrays.
    """
    layout = ExtractLayout()
    container = _LayoutContainer(layout, kinds, WHOLE if whole is None else whole)
    conventions = {str(a.file_attrs.get("Conventions")) for a in arrays}
    container.conventions = conventions.pop() if len(conventions) == 1 and conventions != {"None"} else "CF-1.8"
    if dimensions_first:
        container.name_dimensions(arrays)
    left_out = container.write_all(arrays)
    if left_out:
        names = "; ".join(f"{name.removesuffix(',')}: {reason}" for name, reason in left_out[:3])
        raise AggregationError(f"cannot be written: {names}", path=where, hint="convert it with astype, or leave it out")
    for variable in layout.variables:
        if variable.fill is not None:
            variable.attributes["_FillValue"] = variable.fill
    return layout


def unlimited_dimensions(layout: ExtractLayout) -> set[str]:
    """Return the dimensions of time.

    Without any, they are the joined leading dimensions that have no coordinate.
    """
    axes = {v.name: v for v in layout.variables if v.dimensions == (v.name,)}
    times = {name for name, v in axes.items() if is_reference_time(v.source.units)}
    joined = {v.dimensions[0] for v in layout.variables if v.dimensions and len(v.source._matrix.edges[0]) > 2}
    return {name for name in times or joined - axes.keys() if layout.dimensions[name]}


def appendable_piece(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the chunk of a small variable whose first dimension may grow.

    >>> appendable_piece((12,)), appendable_piece((1, 2)), appendable_piece((700,))
    ((512,), (256, 2), (700,))
    """
    return max(shape[0], _LEAST_PIECE // max(1, prod(shape[1:])), 1), *shape[1:]


def fill_of(array: MasterArray) -> Any:
    """Return the common missing value, else NaN; None if none can be missing."""
    references = array._matrix.compact().references
    missing = []
    for template in map(references.templates.__getitem__, set(references.template.tolist())):
        encodings = (template.encoding, *(s.encoding for s in template.steps if s.encoding))
        # An unresolved template is assumed to allow missing values.
        if template.unresolved or any(e.may_miss for e in encodings):
            missing.append(template)
    if not missing and not (array._matrix.refs < 0).any():
        return None
    if array.dtype.kind in "iu":
        return array.dtype.type(array.fill_value)
    if array.dtype.kind != "f":
        return None
    declared = {
        t.encoding.missing[0].item()
        if t.encoding.missing and not t.encoding.packed and t.encoding.dtype == array.dtype and not (t.steps or t.unresolved)
        else np.nan
        for t in missing
    }
    return array.dtype.type(declared.pop() if len(declared) == 1 else np.nan)


def _chunks(array: MasterArray, whole: int) -> tuple[int, ...] | None:
    """Return chunks like the first sub-array's, None for one piece."""
    if array.dtype.kind == "T" or array.nbytes < max(whole, 1) or not array.ndim:
        return None
    return chunk_like(array.shape, array.dtype.itemsize, stored_chunk(array))


def stored_chunk(array: MasterArray) -> tuple[int, ...]:
    """Return the chunk shape of the first sub-array, else its own shape."""
    matrix = array._matrix
    chunk = tuple(int(np.diff(e).max(initial=1)) for e in matrix.edges)
    for row in matrix.refs[matrix.refs >= 0][:1].tolist():
        with suppress(AggarrayError):  # the read raises the error
            index = find_chunk_index(matrix.references, row, array._access)
            if index is not None and (index[0].filters or prod(index[0].grid) != 1):
                sides = dict(zip(matrix.references.template_of(row).dimensions, index[0].chunk, strict=True))
                chunk = tuple(sides.get(d, 1) for d in matrix.dimensions)
    return chunk
