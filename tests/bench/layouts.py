"""Storage layouts of the benchmarks: one variable over time, latitude and longitude, as a `Layout` describes.

Values are multiples of one eighth, exact in every type used; a tenth of the grid is missing throughout. Files differ only by an
offset, so that large archives are made quickly.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.harness import Size

_SEED = 20_010_101
_STEP = 0.125
_FILLS = {"i2": np.int16(-32767), "f4": np.float32(1e20), ">f4": np.float32(1e20), "f8": np.float64(1e20)}
_ABOUT = {"units": "K", "standard_name": "air_temperature", "cell_methods": "time: mean"}


@dataclass(frozen=True, slots=True)
class Layout:
    """Storage layout of one variable.

    ``dtype``: "f4", "f8", ">f4", or "i2" for values packed with a scale and an offset; ``chunks``: limited to the variable's
    shape, None if contiguous; ``options``: arguments of netCDF4's ``createVariable``, or of h5py's ``create_dataset``, as
    ``by`` says; ``format``: as in netCDF4; ``record``: time is a record (unlimited) dimension.
    """

    chunks: tuple[int, int, int] | None = None
    dtype: str = "f4"
    options: Mapping[str, Any] = field(default_factory=dict)
    by: str = "netCDF4"
    format: str = "NETCDF4"
    record: bool = False


def shape_of(size: Size) -> tuple[int, int, int]:
    """Return the shape of the variable in one file."""
    return size["steps"], size["lat"], size["lon"]


def cut(chunks: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Limit the shape of chunks to that of the variable."""
    return tuple(min(c, n) for c, n in zip(chunks, shape, strict=True))


def eighths(shape: tuple[int, int, int]) -> np.ndarray:
    """Return numbers about as compressible as temperatures, NaN for a tenth of the grid."""
    values = np.round(20 / _STEP * np.random.default_rng(_SEED).standard_normal(shape, dtype=np.float32)) * np.float32(_STEP)
    values[:, : -(-shape[1] // 4), : -(-shape[2] * 2 // 5)] = np.nan
    return values


def write_layout(folder: Path, size: Size, layout: Layout) -> None:
    """Write ``files`` files of ``steps`` days each on a grid of ``lat`` by ``lon`` points, all given in ``size``."""
    values = eighths(shape_of(size))
    for number in range(size["files"]):
        path = folder / f"tas_day_{number:05d}.nc"
        _write(path, number, size, layout, _stored(values + np.float32(number * _STEP), layout))


def _stored(values: np.ndarray, layout: Layout) -> np.ndarray:
    if layout.dtype != "i2":
        return np.where(np.isnan(values), _FILLS[layout.dtype], values + 280).astype(layout.dtype)
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(values), _FILLS["i2"], (values / _STEP).astype("i2"))


def _attributes(layout: Layout) -> dict[str, Any]:
    packing = {"scale_factor": np.float32(_STEP), "add_offset": np.float32(280)} if layout.dtype == "i2" else {}
    return {**_ABOUT, **packing}


def _write(path: Path, number: int, size: Size, layout: Layout, values: np.ndarray) -> None:
    import netCDF4

    steps, rows, columns = values.shape
    with netCDF4.Dataset(path, "w", format=layout.format) as file:
        file.Conventions = "CF-1.8"
        axes = {
            "time": (number * steps + np.arange(steps) + 0.5, "days since 1990-01-01"),
            "lat": ((np.arange(rows) + 0.5) * 180 / rows - 90, "degrees_north"),
            "lon": ((np.arange(columns) + 0.5) * 360 / columns, "degrees_east"),
        }
        for name, (points, units) in axes.items():
            file.createDimension(name, None if name == "time" and layout.record else len(points))
            file.createVariable(name, "f8", (name,)).units = units
            file[name][:] = points
        if layout.by == "netCDF4":
            _by_netcdf4(file, layout, tuple(axes), values)
    if layout.by == "h5py":
        _by_h5py(path, layout, tuple(axes), values)


def _by_netcdf4(file: Any, layout: Layout, dimensions: tuple[str, ...], values: np.ndarray) -> None:
    options = dict(layout.options)
    if layout.format == "NETCDF4":
        options |= {"chunksizes": cut(layout.chunks, values.shape)} if layout.chunks else {"contiguous": True}
        options |= {"endian": "big"} if layout.dtype.startswith(">") else {}
    tas = file.createVariable("tas", layout.dtype, dimensions, fill_value=_FILLS[layout.dtype], **options)
    tas.setncatts(_attributes(layout))
    tas.set_auto_maskandscale(False)
    tas[:] = values


def _by_h5py(path: Path, layout: Layout, dimensions: tuple[str, ...], values: np.ndarray) -> None:
    import h5py

    with h5py.File(path, "r+") as file:
        chunks = cut(layout.chunks, values.shape) if layout.chunks else None
        tas = file.create_dataset("tas", data=values, chunks=chunks, **layout.options)
        for number, name in enumerate(dimensions):
            tas.dims[number].attach_scale(file[name])
        tas.attrs.update({**_attributes(layout), "_FillValue": _FILLS[layout.dtype]})
