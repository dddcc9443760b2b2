"""Generator of the sample profiles, written by ``python -m sample_data.generate`` with the other data.

Sea temperatures along profiles of different depths: three contiguous ragged files, and one indexed ragged file, in which each
sample refers to its profile (CF section 9.3).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

#: Samples per profile, by file; some profiles have none.
SIZES = ((12, 7, 0, 20, 9), (15, 15, 4), (1, 30, 8, 0, 17, 11), (6, 0, 14, 10))


@dataclass(frozen=True, slots=True)
class Cruise:
    """Storage of one file; the defaults are those of most files."""

    number: int
    format: str = "NETCDF4"
    units: str = "degC"
    indexed: bool = False
    packed: bool = False

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"profiles_{2000 + self.number}.nc"


CRUISES = (Cruise(1), Cruise(2, format="NETCDF3_CLASSIC", units="K"), Cruise(3, packed=True), Cruise(4, indexed=True))


def expected_profiles() -> list[np.ndarray]:
    """Return the true temperatures in degC of every profile of all files, in order, one float64 array each."""
    return [_temperature(number, _depths(size)) for number, size in enumerate(n for sizes in SIZES for n in sizes)]


def _depths(size: int) -> np.ndarray:
    return 5.0 * np.arange(size) ** 1.25


def _temperature(profile: int, depths: np.ndarray) -> np.ndarray:
    """Return temperatures that are multiples of 1/64, which float32 represents exactly."""
    return np.round((4 + (14 + profile % 5) * np.exp(-depths / (60 + 7 * profile))) * 64) / 64


def _order(cruise: Cruise) -> np.ndarray:
    """Return the profile of each sample of a file as stored; interleaved in the indexed file."""
    sizes = np.array(SIZES[cruise.number - 1])
    owner = np.repeat(np.arange(len(sizes)), sizes)
    within = np.concatenate([np.arange(n) for n in sizes])
    return owner[np.lexsort((owner, within))] if cruise.indexed else owner


def _add(data: Any, name: str, values: np.ndarray, dimension: str, attributes: dict[str, Any]) -> None:
    attributes = dict(attributes)
    made = data.createVariable(name, values.dtype, (dimension,), fill_value=attributes.pop("_FillValue", None))
    made.setncatts(attributes)
    made.set_auto_maskandscale(False)
    made[:] = values


def write_cruise(path: Path, cruise: Cruise) -> None:
    """Write one file."""
    sizes = SIZES[cruise.number - 1]
    before, owner = sum(map(len, SIZES[: cruise.number - 1])), _order(cruise)
    rows = [(_depths(n), _temperature(before + i, _depths(n))) for i, n in enumerate(sizes)]
    # The inverse of a stable sort: the position of each sample in the concatenated profiles.
    place = np.argsort(np.argsort(owner, kind="stable"), kind="stable")
    depth, temperature = (np.concatenate([row[column] for row in rows])[place] for column in (0, 1))
    stored = temperature + (273.15 if cruise.units == "K" else 0)
    numbers = before + np.arange(len(sizes))
    with netCDF4.Dataset(path, "w", format=cruise.format) as data:
        data.setncatts({"Conventions": "CF-1.11", "featureType": "profile", "title": "Sample of profiles of the sea"})
        for name, size in (("profile", len(sizes)), ("obs", None if cruise.format == "NETCDF3_CLASSIC" else len(owner))):
            data.createDimension(name, size)
        data.createDimension("name_length", 8)
        if cruise.indexed:
            about = {"instance_dimension": "profile", "long_name": "which profile this sample is of"}
            _add(data, "profile_index", owner.astype("i4"), "obs", about)
        else:
            about = {"sample_dimension": "obs", "long_name": "number of samples in this profile"}
            _add(data, "row_size", np.array(sizes, "i4"), "profile", about)
        lat = {"standard_name": "latitude", "units": "degrees_north", "axis": "Y"}
        _add(data, "lat", -60 + 6.5 * numbers, "profile", lat)
        time = {"standard_name": "time", "units": "days since 2000-01-01", "calendar": "standard", "axis": "T"}
        _add(data, "time", 366.0 * cruise.number + np.arange(len(sizes)), "profile", time)
        names = data.createVariable("profile_id", "S1", ("profile", "name_length"))
        names.setncatts({"cf_role": "profile_id", "long_name": "name of the profile"})
        names[:] = np.array([f"P{n:03d}" for n in numbers], "S8").view("S1").reshape(len(sizes), 8)
        _add(data, "depth", depth, "obs", {"standard_name": "depth", "units": "m", "axis": "Z", "positive": "down"})
        about = {"standard_name": "sea_water_temperature", "units": cruise.units, "coordinates": "time lat depth profile_id"}
        if cruise.packed:
            about |= {"scale_factor": np.float32(1 / 64), "_FillValue": np.int16(-32768)}
            stored = stored * 64
        _add(data, "temperature", stored.astype("i2" if cruise.packed else "f4"), "obs", about)


def write_stations(folder: Path) -> None:
    """Write the four files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for cruise in CRUISES:
        write_cruise(folder / cruise.name, cruise)
