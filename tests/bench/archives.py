"""Archives for the benchmarks: folders of netCDF-4 files written from a seed, one variable split along time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_SEED = 20_010_101

#: Global attributes with the keys and lengths of CMIP6 files; those of `_own` differ between files.
_CMIP = {
    "Conventions": "CF-1.7 CMIP-6.2",
    "activity_id": "CMIP",
    "branch_method": "standard",
    "branch_time_in_child": 0.0,
    "branch_time_in_parent": 171550.0,
    "data_specs_version": "01.00.31",
    "experiment": "all-forcing simulation of the recent past",
    "experiment_id": "historical",
    "external_variables": "areacella",
    "forcing_index": np.int32(1),
    "frequency": "day",
    "further_info_url": "https://furtherinfo.example.org/CMIP6.NONE.MADE-UP-1.historical.none.r1i1p1f1",
    "grid": "regular latitude-longitude grid",
    "grid_label": "gn",
    "initialization_index": np.int32(1),
    "institution": "Institute of Benchmarks, an invented place with an address of about the usual length, 00000 Nowhere",
    "institution_id": "NONE",
    "license": "These numbers come from a random generator and may be used by anybody for any purpose. " * 8,
    "mip_era": "CMIP6",
    "nominal_resolution": "1000 km",
    "parent_activity_id": "CMIP",
    "parent_experiment_id": "piControl",
    "parent_mip_era": "CMIP6",
    "parent_source_id": "MADE-UP-1",
    "parent_time_units": "days since 1850-01-01",
    "parent_variant_label": "r1i1p1f1",
    "physics_index": np.int32(1),
    "product": "model-output",
    "realization_index": np.int32(1),
    "realm": "atmos",
    "source": "MADE-UP-1 (2001): atmosphere, land, ocean and sea ice: a random generator on one grid",
    "source_id": "MADE-UP-1",
    "source_type": "AOGCM",
    "sub_experiment": "none",
    "sub_experiment_id": "none",
    "table_id": "day",
    "table_info": "Creation Date:(24 July 2019) MD5:0bb394a356ef9d214d027f1aca45853e",
    "title": "MADE-UP-1 output prepared for nobody",
    "variable_id": "tas",
    "variant_label": "r1i1p1f1",
    "cmor_version": "3.5.0",
}


_AXES = {
    "time": {"units": "days since 1990-01-01", "standard_name": "time", "calendar": "standard", "axis": "T"},
    "lat": {"units": "degrees_north", "standard_name": "latitude", "axis": "Y"},
    "lon": {"units": "degrees_east", "standard_name": "longitude", "axis": "X"},
}
_TAS = {
    "long_name": "Near-Surface Air Temperature",
    "comment": "near-surface (usually, 2 meter) air temperature",
    "original_name": "T2M",
    "history": "altered: reordered dimensions, inverted axis: lat.",
    "cell_methods": "area: time: mean",
    "cell_measures": "area: areacella",
    "coordinates": "height",
    "missing_value": np.float32(1e20),
}


def write_archive(folder: Path, size: Mapping[str, int], *, rich: bool = True, deflated: bool = False) -> None:
    """Write ``files`` netCDF-4 files of ``steps`` days each on a grid of ``lat`` by ``lon`` points, all given in ``size``.

    ``rich``: attributes like those of CMIP6, bounds and a scalar coordinate; otherwise a title, units and standard names.
    ``deflated``: shuffle and deflate the variable, whose values are then rounded to eighths.
    """
    random = np.random.default_rng(_SEED)
    shape = (size["steps"], size["lat"], size["lon"])
    for number in range(size["files"]):
        values = 280 + 20 * random.standard_normal(shape, dtype=np.float32)
        if deflated:
            values = np.round(8 * values) / 8
        _write(folder / f"tas_day_{number:05d}.nc", number, values, rich, deflated)


def _write(path: Path, number: int, values: np.ndarray, rich: bool, deflated: bool) -> None:
    import netCDF4

    steps, rows, columns = values.shape
    with netCDF4.Dataset(path, "w") as file:
        for name, size in (("time", None), ("lat", rows), ("lon", columns), *([("bnds", 2)] if rich else [])):
            file.createDimension(name, size)
        file.setncatts({**_CMIP, **_own(number)} if rich else {"Conventions": "CF-1.8", "title": "benchmark"})
        coordinates = {
            "time": number * steps + np.arange(steps) + 0.5,
            "lat": (np.arange(rows) + 0.5) * 180 / rows - 90,
            "lon": (np.arange(columns) + 0.5) * 360 / columns,
        }
        for name, points in coordinates.items():
            _axis(file, name, points, rich)
        if rich:
            height = file.createVariable("height", "f8", ())
            height.setncatts({"units": "m", "standard_name": "height", "long_name": "height", "positive": "up", "axis": "Z"})
            height[...] = 2.0
        packing = {"zlib": deflated, "shuffle": deflated, "chunksizes": values.shape, "fill_value": 1e20}
        tas = file.createVariable("tas", "f4", tuple(coordinates), **packing)
        tas.setncatts({"units": "K", "standard_name": "air_temperature", **(_TAS if rich else {})})
        tas[:] = values


def _own(number: int) -> dict[str, object]:
    """Return attributes that are unique to a file."""
    return {
        "creation_date": f"2020-06-08T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z",
        "tracking_id": f"hdl:21.14100/8fdd81c6-7b33-424c-9b83-{number:012d}",
        "history": f"written as number {number}, one of many",
    }


def _axis(file: Any, name: str, values: np.ndarray, rich: bool) -> None:
    variable = file.createVariable(name, "f8", (name,))
    variable.setncatts({**_AXES[name], **({"bounds": f"{name}_bnds", "long_name": name} if rich else {})})
    variable[:] = values
    if rich:
        half = (values[1] - values[0]) / 2
        file.createVariable(f"{name}_bnds", "f8", (name, "bnds"))[:] = np.stack([values - half, values + half], axis=1)


def paths_in(folder: Path) -> list[str]:
    """Return the files of an archive, in order."""
    return sorted(map(str, folder.glob("*.nc")))
