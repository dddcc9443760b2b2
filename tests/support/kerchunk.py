"""References of kerchunk and VirtualiZarr in ``fixtures/kerchunk``.

``python -m tests.support.kerchunk`` writes the folder: four data files and their references. It needs both packages. File names
in the references are relative, so that the folder can be moved.
"""

import json
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
from hypothesis import strategies as st

from tests.support.paths import FIXTURES

FOLDER = FIXTURES / "kerchunk"
KINDS = ("nc3", "nc4")


def values(year: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `tas` and packed `pr` of a year, 1e20 and -1 where missing."""
    tas = (np.arange(4 * 6 * 8).reshape(4, 6, 8) * 0.37 + year * 100).astype("f4")
    pr = (np.arange(4 * 6 * 8).reshape(4, 6, 8) * 7 % 61 + year).astype("i2")
    tas[0, 0, 0], pr[1, 2, 3] = 1e20, -1
    return tas, pr


def make_data(folder: Path) -> None:
    """Write two years, each as netCDF-3 and as netCDF-4 with deflated chunks."""
    for year in range(2):
        tas, pr = values(year)
        for kind in KINDS:
            stored: dict[str, Any] = {"zlib": True, "shuffle": True, "chunksizes": (2, 3, 8)} if kind == "nc4" else {}
            model: Any = "NETCDF4" if kind == "nc4" else "NETCDF3_CLASSIC"
            with netCDF4.Dataset(folder / f"y{year}.{kind}", "w", format=model) as file:
                file.title = "sample"
                for name, size, units, sides in (
                    ("time", None, "days since 2000-01-01", (4,)),
                    ("lat", 6, "degrees_north", None),
                ):
                    file.createDimension(name, size)
                    made = file.createVariable(name, "f8", (name,), **({"chunksizes": sides} if stored and sides else {}))
                    made.units = units
                file.createDimension("lon", 8)
                file.createVariable("lon", "f8", ("lon",)).units = "degrees_east"
                file["time"].calendar = "noleap"
                file["time"][:], file["lat"][:] = year * 4 + np.arange(4) + 0.5, np.linspace(50, -50, 6)
                file["lon"][:] = np.arange(8) * 45.0
                for name, data, fill in (("tas", tas, np.float32(1e20)), ("pr", pr, np.int16(-1))):
                    made = file.createVariable(name, data.dtype, ("time", "lat", "lon"), fill_value=fill, **stored)
                    made.units = "K" if name == "tas" else "mm"
                    if name == "pr":
                        made.scale_factor = 0.5
                    made.set_auto_maskandscale(False)
                    made[:] = data


def write_grid(folder: Path, data: Any) -> tuple[int, int] | None:
    """Write files of one array in drawn sizes and chunks; return the chunk shape, None if contiguous.

    ``data``: as `hypothesis.strategies.data` draws.
    """
    sides = data.draw(st.sampled_from([None, (1, 2), (2, 2), (3, 4)]), "chunks")
    start = 0
    for number, size in enumerate(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4), "sizes")):
        with netCDF4.Dataset(folder / f"{number}.nc", "w") as file:
            file.createDimension("time", size)
            file.createDimension("x", 5)
            file.createVariable("time", "f8", ("time",)).units = "days since 2000-01-01"
            file["time"][:] = start + np.arange(size)
            how: Any = {"contiguous": True}
            if sides:
                how = {"chunksizes": tuple(map(min, sides, (size, 5))), "zlib": data.draw(st.booleans())}
            file.createVariable("v", "i4", ("time", "x"), **how)[:] = np.arange(5 * size).reshape(size, 5) + 100 * start
        start += size
    return sides


def relative(references: Any) -> Any:
    """Return references with file names relative to the folder."""
    return json.loads(json.dumps(references).replace(f"file://{FOLDER}/", "").replace(f"{FOLDER}/", ""))


def make_references(folder: Path) -> None:
    """Write the references of kerchunk and VirtualiZarr to each file and to both years together."""
    import kerchunk.combine
    import kerchunk.df
    import kerchunk.hdf
    import kerchunk.netCDF3

    for kind, reader in (("nc4", kerchunk.hdf.SingleHdf5ToZarr), ("nc3", kerchunk.netCDF3.NetCDF3ToZarr)):
        made = [reader(str(folder / f"y{year}.{kind}"), inline_threshold=50).translate() for year in range(2)]
        for year, references in enumerate(made):
            (folder / f"y{year}.{kind}.json").write_text(json.dumps(relative(references)))
        both = kerchunk.combine.MultiZarrToZarr(made, concat_dims=["time"], identical_dims=["lat", "lon"]).translate()
        (folder / f"both.{kind}.json").write_text(json.dumps(relative(both)))
        kerchunk.df.refs_to_dataframe(relative(both), str(folder / f"both.{kind}.parq"), record_size=5)
    make_virtual(folder)


def make_virtual(folder: Path) -> None:
    """Write the references of VirtualiZarr to the netCDF-4 files."""
    import xarray as xr
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser
    from virtualizarr.registry import ObjectStoreRegistry

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    parts = [
        open_virtual_dataset(f"file://{folder}/y{y}.nc4", registry=registry, parser=HDFParser(), loadable_variables=["time"])
        for y in range(2)
    ]
    both: Any = xr.concat(parts, dim="time", data_vars="minimal", coords="minimal", compat="override")
    both.vz.to_kerchunk(str(folder / "virtualizarr.json"), format="json")
    path = folder / "virtualizarr.json"
    path.write_text(json.dumps(relative(json.loads(path.read_text()))))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    make_data(FOLDER)
    make_references(FOLDER)
