"""Pairs of small files that differ in one thing each.

``python -m sample_data.pairs FOLDER`` writes them. The files of some pairs belong together, those of others do not.
Each file holds temperatures on two or three days at four longitudes; `expected` returns the true values. The files are netCDF-4
of the classic model, because other software is tested on them too.
"""

import sys
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

LONGITUDES = (0.0, 90.0, 180.0, 270.0)

#: Properties of each file, by name of the folder.
PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "alike": ({"days": [0, 1]}, {"days": [2, 3]}),
    "units": ({"days": [0, 1]}, {"days": [2, 3], "units": "degC", "add": -273.15}),
    "packing": ({"days": [0, 1], "packed": (0.125, 250.0)}, {"days": [2, 3], "packed": (0.0625, 280.0)}),
    "reference": ({"days": [0, 1]}, {"days": [0, 1], "since": "2001-01-03", "add": 2.0}),
    "order": ({"days": [2, 3]}, {"days": [0, 1]}),
    "interleaved": ({"days": [0, 2]}, {"days": [1, 3]}),
    "rounding": ({"days": [0, 1]}, {"days": [2, 3], "lon": (0.0, 90.0000001, 180.0, 270.0)}),
    "turned": ({"days": [0, 1]}, {"days": [2, 3], "lon": (-180.0, -90.0, 0.0, 90.0)}),
    "overlap": ({"days": [0, 1, 2]}, {"days": [2, 3], "add": 0.5}),
    "models": ({"days": [0, 1], "source_id": "A"}, {"days": [2, 3], "source_id": "B", "add": 5.0}),
    "calendars": ({"days": [0, 1], "calendar": "noleap"}, {"days": [2, 3], "calendar": "360_day"}),
    "gap": ({"days": [0, 1]}, {"days": [4, 5]}),
}


def expected(days: Any, longitudes: Any) -> np.ndarray:
    """Return the temperatures in K at days since 2001-01-01 and longitudes, however these are encoded."""
    return 280.0 + np.asarray(days, "f8")[:, np.newaxis] + np.mod(np.round(longitudes, 3), 360) / 720


def write(path: Path, what: dict[str, Any]) -> None:
    """Write one file."""
    days, longitudes = what["days"], what.get("lon", LONGITUDES)
    with netCDF4.Dataset(path, "w", format="NETCDF4_CLASSIC") as file:
        file.setncatts({name: what[name] for name in ("source_id",) if name in what})
        file.createDimension("time", None)
        file.createDimension("lon", len(longitudes))
        time = file.createVariable("time", "f8", ("time",))
        time.setncatts({"standard_name": "time", "units": f"days since {what.get('since', '2001-01-01')}"})
        time.calendar = what.get("calendar", "standard")
        time[:] = days
        lon = file.createVariable("lon", "f8", ("lon",))
        lon.setncatts({"standard_name": "longitude", "units": "degrees_east"})
        lon[:] = longitudes
        packed, dimensions = what.get("packed"), what.get("dimensions", ("time", "lon"))
        stored = {"fill_value": -32768 if packed else None, **what.get("stored", {})}
        tas = file.createVariable("tas", "i2" if packed else "f8", dimensions, **stored)
        tas.setncatts({"standard_name": "air_temperature", "units": what.get("units", "K")})
        if packed:
            tas.scale_factor, tas.add_offset = packed
        values = expected(days, longitudes) + what.get("add", 0.0)
        tas[:] = values if dimensions[0] == "time" else values.T


def main(folder: Path) -> None:
    """Write all pairs, each into a folder of its name."""
    for name, pair in PAIRS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for letter, what in zip("ab", pair, strict=True):
            write(folder / name / f"{letter}.nc", what)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "pairs"))
