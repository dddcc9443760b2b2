"""Arrays with values in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.cf.encoding import Encoding
from aggarray.cf.units import normal_calendar
from aggarray.dataclass import replace
from aggarray.memory.creation import shared
from aggarray.partition.conform import fill_for
from aggarray.partition.matrix import Template, single

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: Values that are searched at a time.
_BLOCK = 1 << 20


def in_memory(
    like: MasterArray,
    name: str | None,
    values: Any,
    dimensions: Sequence[str],
    units: str | None = None,
    calendar: str | None = None,
    *,
    mask: np.ndarray | None = None,
    fill_value: Any = None,
    attrs: Any = None,
) -> MasterArray:
    """Return an array with values in memory; ``mask``: True where missing.

    Missing values are overwritten.

    ``like``: any array of the class of the result, which has nothing else of it. Arrays import reductions, so that reductions
    cannot import the class of arrays.
    """
    values = np.asarray(values)
    if values.dtype.kind == "U":
        values = values.astype(np.dtypes.StringDType())
    fill = fill_for(values.dtype, fill_value if values.dtype.kind in "iu" else None)
    missing: tuple[Any, ...] = ()
    if mask is not None and mask.any():
        values = values if values.flags.writeable else values.copy()
        np.copyto(values, np.asarray(fill, values.dtype), where=mask)
        missing = (fill,) if fill == fill else ()
    else:
        mask = None
    dtype, axes = values.dtype, (True,) * values.ndim
    encoding = Encoding(dtype, dtype, dtype, missing=missing, missing_nan=mask is not None and not missing)
    calendar = normal_calendar(units, calendar)
    template = Template(values.shape, tuple(dimensions), axes, units, calendar, encoding)
    kept = shared(values)
    described = replace(like, name=name, dtype=dtype, units=units, calendar=calendar, fill_value=fill, attrs=dict(attrs or {}))
    return replace(described, _matrix=single(template, None, kept), file_attrs={}, coords={}, _known=(kept, mask), _origin=None)


def named_array(like: MasterArray, array: Any) -> Any:
    """Return a DataArray as an array in memory, and anything else as it is.

    Coordinates along its dimensions that are numbers or text stay.
    """
    dims = getattr(array, "dims", None)
    own = isinstance(array, type(like)) or not isinstance(dims, tuple) or not hasattr(array, "coords")
    if own or not all(isinstance(n, str) for n in dims or ()):
        return array
    coords = {}
    for name in array.dims:
        values = array.coords[name].values if name in array.coords else np.empty(0, "M8[s]")
        if values.dtype.kind == "O" and all(isinstance(v, str) for v in values.tolist()):
            values = np.array(values.tolist(), str)
        if values.dtype.kind in "iufbU":
            coords[name] = in_memory(like, name, values, [name], array.coords[name].attrs.get("units"))
    return replace(in_memory(like, like.name, array.values, array.dims, array.attrs.get("units")), coords=coords)


def data_and_mask(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return values as a NumPy array, and where a masked array is masked.

    >>> data_and_mask([1.0, 2.0])
    (array([1., 2.]), array([False, False]))
    """
    data = np.asarray(values.data if isinstance(values, np.ma.MaskedArray) else values)
    return data, np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else np.zeros(data.shape, bool)


def missing_in(values: np.ndarray) -> np.ndarray | None:
    """Return where values are NaN; None, in little memory, if none is.

    >>> missing_in(np.array([1.0, np.nan])), missing_in(np.array([1.0]))
    (array([False,  True]), None)
    """
    flat = values.reshape(-1)
    blocks = (flat[at : at + _BLOCK] for at in range(0, flat.size, _BLOCK))
    return np.isnan(values) if any(bool(np.isnan(block).any()) for block in blocks) else None
