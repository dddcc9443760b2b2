"""A small archive in the layout of CMIP6, for the recipes of the documentation.

``python -m sample_data.models FOLDER`` writes FOLDER/cmip6: monthly temperatures of two models, in historical and scenario runs
of one or three members, in files of ten years; and FOLDER/station: sixty days of hourly temperatures and rain at four places,
a file per ten days. Values come from formulas and a seeded generator, so that every run writes the same.
"""

import sys
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

LATITUDES = np.arange(-82.5, 90, 15)
LONGITUDES = np.arange(15.0, 360, 30)

#: Members, calendar and units of each model; their warming per year after 2000.
MODELS: dict[str, tuple[tuple[str, ...], str, str, float]] = {
    "ALPHA": (("r1i1p1f1", "r2i1p1f1", "r3i1p1f1"), "noleap", "K", 0.03),
    "BETA": (("r1i1p1f1",), "360_day", "degC", 0.05),
}
#: Days of the months of each calendar.
MONTHS = {"noleap": (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), "360_day": (30,) * 12}
#: First year of each file, and the last year, of each experiment.
EXPERIMENTS = {"historical": ((1981, 1991, 2001, 2011), 2014), "ssp245": ((2015, 2025), 2034)}


def temperatures(model: str, member: str, first: int, last: int) -> np.ndarray:
    """Return monthly temperatures in K: by latitude, season and warming, with noise."""
    _, _, _, warming = MODELS[model]
    months = np.arange(12 * (last - first + 1))
    years = first + months / 12
    season = np.cos(2 * np.pi * (months - 6) / 12)
    seed = [ord(c) for c in f"{model}{member}"] + [first]
    generator = np.random.default_rng(seed)
    noise = generator.normal(0, 0.4, (len(months), len(LATITUDES), len(LONGITUDES)))
    noise += generator.normal(0, 0.15, len(months) // 12).repeat(12)[:, np.newaxis, np.newaxis]
    across = 300 - 48 * np.sin(np.radians(LATITUDES)) ** 2 + 6 * np.sin(np.radians(LATITUDES)) ** 3
    along = 1.5 * np.cos(np.radians(LONGITUDES - 60))
    trend = (warming * np.maximum(years - 2000, 0))[:, np.newaxis] * (1 + np.sin(np.radians(LATITUDES)) ** 2)
    swing = 14 * np.sin(np.radians(LATITUDES)) * season[:, np.newaxis]
    field = across + trend + swing
    return np.asarray(np.round(8 * (field[..., np.newaxis] + along + noise)) / 8)


def add_axis(file: Any, name: str, edges: np.ndarray, standard_name: str, units: str, axis: str) -> None:
    """Add a coordinate in the middle of cells, and their edges as bounds."""
    values = (edges[1:] + edges[:-1]) / 2
    file.createDimension(name, None if name == "time" else len(values))
    made = file.createVariable(name, "f8", (name,))
    made.setncatts({"standard_name": standard_name, "units": units, "axis": axis, "bounds": f"{name}_bnds"})
    made[:] = values
    bounds = file.createVariable(f"{name}_bnds", "f8", (name, "bnds"))
    bounds[:] = np.stack([edges[:-1], edges[1:]], axis=-1)


def write_months(path: Path, model: str, experiment: str, member: str, first: int, last: int) -> None:
    """Write one file of a model."""
    _, calendar, units, _ = MODELS[model]
    path.parent.mkdir(parents=True, exist_ok=True)
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"mip_era": "CMIP6", "source_id": model, "experiment_id": experiment, "variant_label": member})
        file.setncatts({"table_id": "Amon", "grid_label": "gn", "frequency": "mon"})
        file.createDimension("bnds", 2)
        lengths = np.tile(MONTHS[calendar], last - first + 1)
        edges = (first - 1850) * sum(MONTHS[calendar]) + np.concatenate(([0], np.cumsum(lengths)))
        add_axis(file, "time", edges, "time", "days since 1850-01-01", "T")
        file["time"].calendar = calendar
        add_axis(file, "lat", np.linspace(-90, 90, 13), "latitude", "degrees_north", "Y")
        add_axis(file, "lon", np.linspace(0, 360, 13), "longitude", "degrees_east", "X")
        tas = file.createVariable("tas", "f4", ("time", "lat", "lon"), zlib=True, fill_value=1e20)
        tas.setncatts({"standard_name": "air_temperature", "units": units, "cell_methods": "area: time: mean"})
        tas[:] = temperatures(model, member, first, last) - (273.15 if units == "degC" else 0)


def write_hours(path: Path, first: int) -> None:
    """Write ten days of hourly temperature and rain at four stations."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hours = np.arange(first * 24, (first + 10) * 24)
    noise = np.random.default_rng(first).normal(0, 0.5, (len(hours), 4))
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("station", 4)
        time = file.createVariable("time", "i4", ("time",))
        time.setncatts({"standard_name": "time", "units": "hours since 2001-05-01", "calendar": "standard"})
        time[:] = hours
        swing = 6 * np.cos(2 * np.pi * (hours - 15) / 24) + hours / 240
        values = 285 + swing[:, np.newaxis] + np.arange(4) + noise
        rain = np.where((hours[:, np.newaxis] // 7 + np.arange(4)) % 9 == 0, 0.5, 0.0)
        for name, data, standard_name, units in (
            ("tas", values, "air_temperature", "K"),
            ("pr", rain, "lwe_thickness_of_precipitation_amount", "mm"),
        ):
            made = file.createVariable(name, "f4", ("time", "station"), zlib=True, fill_value=1e20)
            made.setncatts({"standard_name": standard_name, "units": units})
            made[:] = data


def main(folder: str) -> None:
    """Write the archive and the stations into a folder."""
    for model, (members, *_) in MODELS.items():
        for experiment, (firsts, last) in EXPERIMENTS.items():
            for member in members:
                home = Path(folder, "cmip6", model, experiment, member, "Amon", "tas", "gn")
                for first, following in zip(firsts, [*firsts[1:], last + 1], strict=True):
                    name = f"tas_Amon_{model}_{experiment}_{member}_gn_{first}01-{following - 1}12.nc"
                    write_months(home / name, model, experiment, member, first, following - 1)
    for first in range(0, 60, 10):
        write_hours(Path(folder, "station", f"station_{first:02}.nc"), first)


if __name__ == "__main__":
    main(*sys.argv[1:])
