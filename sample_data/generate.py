"""Generator of the sample data.

``python -m sample_data.generate [FOLDER]`` writes ``archive/`` (a year of daily near-surface air temperature, one file a
month, every file stored differently), ``tiles/`` (ten rectangles of one small matrix) and ``stations/`` (profiles of different
depths, `sample_data.stations`) into FOLDER, by default the folder of this script. All values are computed from formulas and a
fixed seed, and are reproducible.
"""

import base64
import shutil
import struct
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import zarr

from sample_data.stations import write_stations

DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
LAT = np.arange(-85.0, 90.0, 10.0)
LON = np.arange(5.0, 360.0, 10.0)
MISSING = np.float32(1e20)
SEED = 2001

#: Days from 1850-01-01, the reference date of most files, to 2001-01-01.
EPOCH_DAYS = 55152
#: Hours from 1970-01-01 to 2001-01-01.
EPOCH_HOURS = 271752

GLOBAL_ATTRIBUTES = {
    "Conventions": "CF-1.11",
    "mip_era": "CMIP6",
    "activity_id": "CMIP",
    "institution_id": "SAMPLE",
    "institution": "Made-up data for demonstrations",
    "source_id": "SAMPLE-1-0",
    "source": "formulas and a fixed seed",
    "experiment_id": "historical",
    "experiment": "all-forcing simulation of the recent past",
    "variant_label": "r1i1p1f1",
    "realization_index": np.int32(1),
    "table_id": "day",
    "frequency": "day",
    "variable_id": "tas",
    "grid_label": "gn",
    "nominal_resolution": "1000 km",
    "title": "Sample of daily near-surface air temperature, 2001",
}

TAS_ATTRIBUTES = {
    "standard_name": "air_temperature",
    "long_name": "Near-Surface Air Temperature",
    "units": "K",
    "cell_methods": "area: time: mean",
    "coordinates": "height",
}


@dataclass(frozen=True, slots=True)
class Month:
    """Storage of one month of the archive; the defaults are those of most files."""

    number: int
    format: str = "NETCDF4"
    suffix: str = ".nc"
    dtype: str = "f4"
    units: str = "K"
    time_units: str = "days since 1850-01-01"
    calendar: str = "standard"
    dimensions: tuple[str, ...] = ("time", "lat", "lon")
    northward: bool = True
    unlimited: bool = True
    fill: Mapping[str, Any] | None = None
    packing: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"tas_2001{self.number:02d}{self.suffix}"


ARCHIVE = (
    Month(1),
    Month(2, format="NETCDF3_CLASSIC"),
    Month(3, format="NETCDF3_64BIT_OFFSET", units="degC", unlimited=False),
    Month(4, format="NETCDF3_64BIT_DATA", northward=False),
    Month(5, format="HDF5", suffix=".h5"),
    Month(6, format="ZARR2", suffix=".zarr"),
    Month(7, format="ZARR3", suffix=".zarr"),
    Month(
        8,
        dtype="i2",
        fill={"_FillValue": np.int16(-32768)},
        packing={"scale_factor": np.float32(0.01), "add_offset": np.float32(273.15)},
    ),
    Month(9, time_units="hours since 1970-01-01 00:00:00", calendar="gregorian"),
    Month(10, dimensions=("lon", "lat", "time"), unlimited=False),
    Month(11, dtype="f8"),
    Month(12, fill={"missing_value": np.float32(-999.0)}),
)

#: Ten rectangles (rows, columns) that tile 8 x 7 without a common cut from edge to edge: their common refinement has 4 x 6
#: cells.
TILES = [
    (slice(0, 2), slice(0, 2)),
    (slice(0, 2), slice(2, 5)),
    (slice(0, 5), slice(5, 7)),
    (slice(2, 5), slice(0, 1)),
    (slice(2, 6), slice(1, 4)),
    (slice(2, 5), slice(4, 5)),
    (slice(5, 8), slice(0, 1)),
    (slice(5, 6), slice(4, 7)),
    (slice(6, 8), slice(1, 3)),
    (slice(6, 8), slice(3, 7)),
]


def days_of(month: int) -> slice:
    """Return the slice of the 365 days for month 1 to 12.

    >>> days_of(2)
    slice(31, 59, None)
    """
    stop = int(DAYS[:month].sum())
    return slice(stop - int(DAYS[month - 1]), stop)


def missing_cells() -> np.ndarray:
    """Return a mask of missing values: bool, shape (365, 18, 36). A few cells in months 2, 5, 8 and 12."""
    missing = np.zeros((int(DAYS.sum()), LAT.size, LON.size), dtype=bool)
    cells = ((2, slice(0, 2), slice(30, 36)), (5, 16, slice(3, 9)), (8, 9, 20), (12, slice(4, 6), slice(0, 3)))
    for month, rows, columns in cells:
        first = days_of(month).start
        missing[first + 3 : first + 9, rows, columns] = True
    return missing


def expected_tas() -> np.ndarray:
    """Return the true temperatures in K, float64, shape (365, 18, 36), NaN where missing.

    Values are multiples of 1/64 K, which float32 represents exactly and which compress well.
    """
    day = np.arange(DAYS.sum())[:, np.newaxis, np.newaxis]
    lat = np.deg2rad(LAT)[:, np.newaxis]
    lon = np.deg2rad(LON)
    mean = 301.0 - 52.0 * np.sin(lat) ** 2
    season = -14.0 * np.sin(lat) * np.cos(2 * np.pi * (day - 20) / 365) * (1 + 0.3 * np.cos(lon - 1.5))
    waves = sum(
        size * np.cos(number * lon - 2 * np.pi * day / period + number) * np.sin(2 * lat) ** 2
        for number, size, period in ((2, 2.0, 24.0), (4, 3.0, 9.0), (6, 1.5, 5.5))
    )
    # The uniform stream of the legacy generator is frozen, unlike that of newer generators.
    noise = np.random.RandomState(SEED).random_sample((3, DAYS.sum(), LAT.size, LON.size)).sum(axis=0) - 1.5
    truth = np.round((mean + season + waves + noise) * 64) / 64
    truth[missing_cells()] = np.nan
    return truth


def time_axis(month: Month) -> tuple[np.ndarray, np.ndarray]:
    """Return the noons of a month's days, shape (days,), and their bounds, shape (days, 2), float64, in its units."""
    chosen = days_of(month.number)
    start = np.arange(chosen.start, chosen.stop, dtype="f8")
    if month.time_units.startswith("hours"):
        start, step = start * 24 + EPOCH_HOURS, 24.0
    else:
        start, step = start + EPOCH_DAYS, 1.0
    return start + step / 2, np.stack([start, start + step], axis=1)


def stored_tas(month: Month) -> np.ndarray:
    """Return the values of a month as stored: packed, in its units, order and direction."""
    values = expected_tas()[days_of(month.number)]
    missing = np.isnan(values)
    if month.units == "degC":
        values = values - 273.15
    if month.packing:
        values = np.round((values - 273.15) * 100)
    stored = np.where(missing, 0, values).astype(month.dtype)
    stored[missing] = next(iter(fill_of(month).values()))
    if not month.northward:
        stored = stored[:, ::-1]
    return np.ascontiguousarray(stored.transpose([("time", "lat", "lon").index(d) for d in month.dimensions]))


def fill_of(month: Month) -> Mapping[str, Any]:
    """Return the attributes that declare a month's missing value."""
    if month.fill is not None:
        return month.fill
    value = np.dtype(month.dtype).type(MISSING)
    return {"_FillValue": value, "missing_value": value}


def variables_of(month: Month) -> dict[str, tuple[tuple[str, ...], np.ndarray, dict[str, Any]]]:
    """Return every variable of a month's file: name to (dimensions, stored values, attributes)."""
    time, time_bounds = time_axis(month)
    edges = {"lat": np.arange(-90.0, 91.0, 10.0), "lon": np.arange(0.0, 361.0, 10.0)}
    bounds = {name: np.stack([cuts[:-1], cuts[1:]], axis=1) for name, cuts in edges.items()}
    lat = LAT
    if not month.northward:
        lat, bounds["lat"] = LAT[::-1], bounds["lat"][::-1, ::-1]
    times = {"standard_name": "time", "axis": "T", "units": month.time_units, "calendar": month.calendar, "bounds": "time_bnds"}
    lats = {"standard_name": "latitude", "axis": "Y", "units": "degrees_north", "bounds": "lat_bnds"}
    lons = {"standard_name": "longitude", "axis": "X", "units": "degrees_east", "bounds": "lon_bnds"}
    height = {"standard_name": "height", "axis": "Z", "positive": "up", "units": "m"}
    tas = TAS_ATTRIBUTES | {"units": month.units} | dict(fill_of(month)) | dict(month.packing or {})
    return {
        "time": (("time",), time, times),
        "time_bnds": (("time", "bnds"), time_bounds, {}),
        "lat": (("lat",), lat, lats),
        "lat_bnds": (("lat", "bnds"), bounds["lat"], {}),
        "lon": (("lon",), LON, lons),
        "lon_bnds": (("lon", "bnds"), bounds["lon"], {}),
        "height": ((), np.float64(2.0), height),
        "tas": (month.dimensions, stored_tas(month), tas),
    }


def global_attributes(month: Month) -> dict[str, Any]:
    """Return the global attributes of a month's file; ``tracking_id`` is unique, as in real archives."""
    return GLOBAL_ATTRIBUTES | {"tracking_id": f"hdl:21.14100/{uuid.uuid5(uuid.NAMESPACE_URL, month.name)}"}


def write_netcdf(path: Path, month: Month) -> None:
    """Write a month as netCDF in ``month.format``."""
    variables = variables_of(month)
    with netCDF4.Dataset(path, "w", format=month.format) as data:
        data.setncatts(global_attributes(month))
        for name, size in (("time", len(variables["time"][1])), ("lat", LAT.size), ("lon", LON.size), ("bnds", 2)):
            data.createDimension(name, None if name == "time" and month.unlimited else size)
        for name, (dimensions, values, attributes) in variables.items():
            attributes = dict(attributes)
            storage: dict[str, Any] = {}
            if name == "tas" and month.format == "NETCDF4":
                storage = {"compression": "zlib", "shuffle": True, "complevel": 6, "chunksizes": values.shape}
            fill = attributes.pop("_FillValue", None)
            variable = data.createVariable(name, np.asarray(values).dtype, dimensions, fill_value=fill, **storage)
            variable.setncatts(attributes)
            variable.set_auto_maskandscale(False)
            variable[...] = values


def write_hdf5(path: Path, month: Month) -> None:
    """Write a month as HDF5 with dimension scales, without the netCDF library."""
    variables = variables_of(month)
    with h5py.File(path, "w") as data:
        data.attrs.update(global_attributes(month))
        for name, (_, values, attributes) in variables.items():
            storage = {"compression": "gzip", "shuffle": True, "chunks": values.shape} if name == "tas" else {}
            data.create_dataset(name, data=values, **storage).attrs.update(attributes)
        # A dimension without a coordinate is a scale without values, marked as netCDF-4 does.
        data.create_dataset("bnds", data=np.zeros(2, "f4")).make_scale("This is a netCDF dimension but not a netCDF variable.")
        for name in ("time", "lat", "lon"):
            data[name].make_scale(name)
        for name, (dimensions, _, _) in variables.items():
            for axis, dimension in enumerate(dimensions):
                if name != dimension:
                    data[name].dims[axis].attach_scale(data[dimension])


def write_zarr(path: Path, month: Month) -> None:
    """Write a month as a Zarr store: version 2 with consolidated metadata, or version 3 without."""
    version = 2 if month.format == "ZARR2" else 3
    shutil.rmtree(path, ignore_errors=True)
    root = zarr.create_group(path, zarr_format=version, attributes=plain(global_attributes(month)))
    for name, (dimensions, values, attributes) in variables_of(month).items():
        values = np.asarray(values)
        attributes = dict(attributes)
        given: dict[str, Any] = {"fill_value": None}
        if version == 2:
            given["fill_value"] = attributes.pop("_FillValue", None)
            attributes["_ARRAY_DIMENSIONS"] = list(dimensions)
        else:
            given["dimension_names"] = dimensions
            if "_FillValue" in attributes:
                # JSON of version 3 cannot store every float exactly; xarray encodes its bytes.
                attributes["_FillValue"] = base64.standard_b64encode(struct.pack("<d", attributes["_FillValue"])).decode()
        chunks = (10, *values.shape[1:]) if name == "tas" else values.shape
        array = root.create_array(
            name, shape=values.shape, dtype=values.dtype, chunks=chunks, attributes=plain(attributes), **given
        )
        array[...] = values
    if version == 2:
        zarr.consolidate_metadata(root.store, zarr_format=2)


def plain(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as JSON values."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in attributes.items()}


def write_archive(folder: Path) -> None:
    """Write the twelve months into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for month in ARCHIVE:
        write = {"HDF5": write_hdf5, "ZARR2": write_zarr, "ZARR3": write_zarr}.get(month.format, write_netcdf)
        write(folder / month.name, month)


def write_tiles(folder: Path) -> None:
    """Write the ten tiles into a folder: value = 10 * y + x, alternately float64 and float32."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (rows, columns) in enumerate(TILES, 1):
        y, x = np.arange(8.0)[rows], np.arange(7.0)[columns]
        with netCDF4.Dataset(folder / f"tile_{number:02d}.nc", "w", format="NETCDF4") as data:
            data.setncatts({"Conventions": "CF-1.11", "title": "Sample of tiles whose edges do not align"})
            for name, values in (("y", y), ("x", x)):
                data.createDimension(name, values.size)
                coordinate = data.createVariable(name, "f8", (name,))
                coordinate.setncatts({"standard_name": f"projection_{name}_coordinate", "axis": name.upper(), "units": "m"})
                coordinate[:] = values
            variable = data.createVariable("value", "f8" if number % 2 else "f4", ("y", "x"))
            variable.setncatts({"long_name": "ten times y plus x", "units": "1"})
            variable[:] = 10 * y[:, np.newaxis] + x


def main(arguments: list[str]) -> None:
    """Write everything into the given folder, or into that of this script."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parent
    write_archive(folder / "archive")
    write_tiles(folder / "tiles")
    write_stations(folder / "stations")


if __name__ == "__main__":
    main(sys.argv[1:])
