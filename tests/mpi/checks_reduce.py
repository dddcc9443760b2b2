"""Checks that reductions of sections are those of the array.

All processes run them together.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray

import aggarray as aa
from aggarray import mpi
from aggarray.dap import Block, Cyclic, Distribution, LocalArray, Unstructured
from aggarray.mpi import ProcessGroup
from aggarray.mpi.transport.agreement import call_on_root
from tests.mpi.checks import factors, raises_on_all, section
from tests.mpi.checks_files import shared_folder

#: 110 days of 2001 from 20 January on.
SHAPE = (110, 12, 9)
OPERATIONS = ("mean", "sum", "min", "max", "std", "var", "count", "any", "all", "first", "last", "argmin", "argmax")


def write_days(folder: Path) -> None:
    """Write two files of temperatures and flags, some missing, with bounds."""
    rng = np.random.default_rng(5)
    values = 280 + 30 * rng.normal(size=SHAPE)
    values[rng.random(SHAPE) < 0.2], values[:, 3, 4], values[:40, 5] = 1e20, 1e20, 1e20
    flags = rng.integers(-3, 4, SHAPE).astype("i2")
    flags[:, 2, 2] = -3
    flags[:, 2, 3], flags[::37, 2, 3] = 0, -1  # the sum is the fill value
    lat = np.linspace(-82.5, 82.5, SHAPE[1])
    for number, part in enumerate((slice(0, 50), slice(50, 110))):
        with netCDF4.Dataset(folder / f"{number}.nc", "w") as file:
            days = np.arange(*part.indices(SHAPE[0])) + 19.5
            for name, centres, units in (
                ("time", days, "days since 2001-01-01"),
                ("lat", lat, "degrees_north"),
                ("lon", np.arange(9) * 40.0, "degrees_east"),
            ):
                file.createDimension(name, len(centres))
                file.createVariable(name, "f8", (name,))[:] = centres
                half = {"time": 0.5, "lat": 7.5, "lon": 20}[name]
                file[name].setncatts({"units": units, "bounds": f"{name}_bnds"})
                if "bnds" not in file.dimensions:
                    file.createDimension("bnds", 2)
                file.createVariable(f"{name}_bnds", "f8", (name, "bnds"))[:] = np.stack([centres - half, centres + half], -1)
            tas = file.createVariable("tas", "f8", ("time", "lat", "lon"), fill_value=1e20)
            tas.setncatts({"units": "K", "standard_name": "air_temperature"})
            tas[:] = values[part]
            file.createVariable("flags", "i2", ("time", "lat", "lon"), fill_value=np.int16(-3))[:] = flags[part]


def across(root: ProcessGroup) -> list[Distribution]:
    """Return distributions across and along the reduced dimensions."""
    n, (t, y, x) = root.size, SHAPE
    rng = np.random.default_rng(n)
    order = rng.permutation(t)
    return [
        Distribution.regular(SHAPE, "bbb", (n, 1, 1), padding={0: (1, 1)}),
        Distribution.regular(SHAPE, "bcb", factors(n, 3, rng)),
        Distribution((Unstructured(t, np.array_split(order, n)), Block.even(y, 1), Cyclic(x, 1))),
    ]


def is_same(local: Any, whole: aa.MasterArray) -> None:
    """Compare the section of a result with the result of the array."""
    assert local.distribution.shape == whole.shape and local.metadata.dimensions == whole.dimensions
    assert local.dtype == whole.dtype, (local.dtype, whole.dtype)
    expected = whole.read(masked=True)
    mask = section(np.ma.getmaskarray(expected), local.distribution, local.rank)
    plain = section(np.ma.getdata(expected), local.distribution, local.rank)
    found = np.ma.masked_array(local.buffer, mask)
    assert np.ma.allclose(found, np.ma.masked_array(plain, mask), rtol=1e-11, atol=0)
    if local.dtype.kind == "f":
        assert np.array_equal(np.isnan(local.buffer), mask | np.isnan(plain))
    elif local.metadata.fill_value is not None:
        assert (local.buffer[mask] == local.metadata.fill_value).all()
    assert (local.metadata.units, local.metadata.calendar) == (whole.units, whole.calendar)


def check_groups_of_times(root: ProcessGroup) -> None:
    """Each operation by groups equals that of the array, and its metadata."""
    with shared_folder(root) as folder:
        call_on_root(root.link, lambda: write_days(folder))
        agg = mpi.open(str(folder), root)
        labels = np.arange(SHAPE[0]) % 4
        for number, distribution in enumerate(across(root)):
            sections = {name: mpi.local(agg[name], distribution, root) for name in ("tas", "flags")}
            for place, operation in enumerate(OPERATIONS):
                name = ("tas", "flags")[(place + number) % 2]
                by: Any = ("month", "year-month", labels)[(place + number) % 3]
                result: Any = mpi.reduce(sections[name], operation, "time", root, by=by)
                whole = agg[name].reduce(operation, "time", by=by)
                is_same(result, whole)
                assert list(result.metadata.coords) == list(whole.coords)
                assert result.metadata.attrs.get("cell_methods") == whole.attrs.get("cell_methods")
                plain: Any = mpi.reduce(sections[name], operation, "time", root)
                if operation != "sum":  # that of no values is 0
                    is_same(plain, agg[name].reduce(operation, "time"))


def check_weights(root: ProcessGroup) -> None:
    """Weighted reductions equal those of the array."""
    with shared_folder(root) as folder:
        call_on_root(root.link, lambda: write_days(folder))
        agg = mpi.open(str(folder), root)
        rng = np.random.default_rng(2)
        cases: list[tuple[Any, Any]] = [
            (("lat", "lon"), "area"),
            (("lon", "lat"), rng.random((9, 12))),
            ("time", "time"),
            (None, {"lat": rng.random(12), "time": rng.random(110)}),
        ]
        for number, distribution in enumerate(across(root)):
            name = ("tas", "flags")[number % 2]
            local = mpi.local(agg[name], distribution, root)
            for dims, weights in cases:
                for operation in ("mean", "sum", "std", "var", "max"):
                    result: Any = mpi.reduce(local, operation, dims, root, weights=weights)
                    is_same(result, agg[name].reduce(operation, dims, weights=weights))
            seasons: Any = mpi.reduce(local, "mean", "time", root, by="season", weights="time")
            is_same(seasons, agg[name].reduce("mean", "time", by="season", weights="time"))


def check_written_groups(root: ProcessGroup) -> None:
    """A climatology is written with its coordinates."""
    with shared_folder(root) as folder:
        call_on_root(root.link, lambda: write_days(folder))
        tas = mpi.open(str(folder), root)["tas"]
        monthly = mpi.reduce(mpi.local(tas, across(root)[1], root), "mean", "time", root, by="month")
        for path in (folder / "monthly.zarr", folder / "monthly.nc"):
            mpi.write(monthly, root, path)
            opened: Any = xarray.open_zarr(path) if path.suffix == ".zarr" else xarray.open_dataset(path)
            with opened as dataset:
                assert dataset["month"].values.tolist() == [1, 2, 3, 4, 5]
                assert np.allclose(dataset["tas"], tas.mean("time", by="month"), rtol=1e-12, equal_nan=True)
            root.link.allgather(None)


def check_unclear_reductions(root: ProcessGroup) -> None:
    """Invalid groups and weights are errors on all processes."""
    with shared_folder(root) as folder:
        call_on_root(root.link, lambda: write_days(folder))
        tas = mpi.open(str(folder), root)["tas"]
        local = mpi.local(tas, across(root)[0], root)
        for dims, how, text in (
            ("time", {"by": "moth"}, "'moth'"),
            (("time", "lat"), {"by": "month"}, "by groups one dimension"),
            ("time", {"by": np.zeros(3)}, "labels of shape"),
            ("time", {"weights": "are"}, "'are'"),
            ("lat", {"weights": np.ones(3)}, "weights of shape"),
            ("lat", {"weights": {"lon": np.ones(9)}}, "'lon'"),
        ):
            raises_on_all(root, text, lambda d=dims, h=how: mpi.reduce(local, "mean", d, root, **h), aa.AggarrayError)  # type: ignore[misc]
        raises_on_all(root, "first is along one", lambda: mpi.reduce(local, "first", None, root), aa.AggarrayError)
        if root.size > 1:
            by = "month" if root.rank else "season"
            raises_on_all(root, "differ", lambda: mpi.reduce(local, "mean", "time", root, by=by))
    # Exporters have no coordinates, but labels and arrays of weights.
    values = np.arange(24.0).reshape(6, 4)
    distribution = Distribution.regular(values.shape, "bb", (root.size, 1))
    own = distribution.dim_data(root.rank or 0)
    export = {"__version__": "0.10.0", "buffer": section(values, distribution, root.rank or 0), "dim_data": own}
    imported = LocalArray.from_distarray(export)
    labels = np.array([0, 1, 1, 0, 2, 2])
    grouped = mpi.reduce(imported, "sum", 0, root, by=labels)
    assert np.array_equal(grouped.buffer, [values[labels == n].sum(axis=0) for n in range(3)])
    weighted = mpi.reduce(imported, "mean", "dim_1", root, weights=np.array([1, 0, 0, 3.0]))
    assert np.allclose(weighted.buffer, section((values[:, 0] + 3 * values[:, 3]) / 4, weighted.distribution, weighted.rank))


REDUCE_CHECKS: tuple[Callable[[ProcessGroup], None], ...] = (
    check_groups_of_times,
    check_weights,
    check_written_groups,
    check_unclear_reductions,
)
