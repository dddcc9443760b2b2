"""Checks of processes that fail or call different operations.

All processes run them together; none may hang.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import netCDF4
import numpy as np
import xarray
import zarr

import aggarray as aa
from aggarray import mpi
from aggarray.dap import Distribution, LocalArray
from aggarray.mpi import AllSumReduce, Broadcast, ProcessGroup, Repartition
from aggarray.mpi.transport.agreement import call_on_root
from aggarray.mpi.zarr_store import Store
from tests.mpi.checks import raises_on_all, section
from tests.mpi.checks_files import Exporter, shared_folder


def check_other_calls(root: ProcessGroup) -> None:
    """Different calls and invalid arguments raise on all processes."""
    size, me = root.size, root.rank or 0
    last, everybody = me == size - 1, root.grid((size,))
    raises_on_all(root, "invalid include None; give a list", lambda: root.include(None))  # type: ignore[arg-type]
    raises_on_all(root, "invalid shape 3; give a list", lambda: root.grid(3))  # type: ignore[arg-type]
    raises_on_all(root, "invalid periodic True; give a list", lambda: root.grid((size,), periodic=True))  # type: ignore[arg-type]
    raises_on_all(root, "invalid keep 'x'; give dimensions", lambda: everybody.subgrid("x"))  # type: ignore[arg-type]
    raises_on_all(root, "is not a process group", lambda: Broadcast(None, everybody))  # type: ignore[arg-type]
    if size == 1:
        return
    raises_on_all(root, f"process {size - 1}: invalid include None; give a list", lambda: root.include(None if last else [0]))  # type: ignore[arg-type]
    raises_on_all(root, "is not a process group", lambda: Broadcast(everybody, None if last else everybody))  # type: ignore[arg-type]
    first, second = (Broadcast(root.include([rank]), root) for rank in (0, 1))
    raises_on_all(root, "processes 0 and .* differ", lambda: (second if last else first)(me))
    assert first(10 + me).item() == 10 and second(10 + me).item() == 11
    d, c = (Distribution.regular((2 * size,), kind, (size,)) for kind in "bc")
    there, back = Repartition(root, root, d, c), Repartition(root, root, c, d)
    raises_on_all(root, "processes 0 and .* differ", lambda: (back if last else there)(np.ones(2)))
    mine = section(np.arange(2 * size), d, me)
    assert np.array_equal(back(there(mine)), mine)

    class Broken:
        """What another library has, and cannot hand on."""

        def __array__(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("the device is gone")

    raises_on_all(root, "RuntimeError: the device is gone", lambda: first(Broken() if me == 0 else None))
    assert first(me).item() == 0


def check_sums_of_large_arrays(root: ProcessGroup) -> None:
    """Sums of large arrays are correct and equal on all processes."""
    size, me = root.size, root.rank or 0
    for count in (8192, 100_003):
        values = np.random.default_rng(me).random((count, 2))
        result = AllSumReduce(root.grid((size,)), axes_keep=())(values)
        expected = sum(np.random.default_rng(rank).random((count, 2)) for rank in range(size))
        assert np.allclose(result, expected, rtol=1e-13, atol=0)
        assert len(set(root.link.allgather(result.tobytes()))) == 1


NAMES = ["Uccle", "De Bilt", "", "Ålesund", "x" * 50]


def _arrays(folder: Path) -> None:
    """Write similar variables, later steps of one, and stations with names."""
    for name, start in (("tas", 0), ("pr", 0), ("later", 6)):
        with netCDF4.Dataset(folder / f"{name}.nc", "w") as file:
            file.createDimension("time", 6)
            time = file.createVariable("time", "f8", ("time",))
            time.units, time[:] = "days since 2000-01-01", np.arange(start, start + 6)
            values = file.createVariable(name, "f8", ("time",))
            values.units, values[:] = "1", np.arange(start, start + 6)
    with netCDF4.Dataset(folder / "stations.nc", "w") as file:
        file.createDimension("station", 5)
        names = file.createVariable("name", str, ("station",))
        names[:] = np.array(NAMES, object)
        file.createVariable("owner", str, ("station",))[:] = np.array(NAMES[::-1], object)
        height = file.createVariable("height", "f8", ("station",))
        height.units, height.coordinates, height[:] = "m", "name", np.arange(5.0)


def check_other_arrays(root: ProcessGroup) -> None:
    """Different arrays or operations raise; infinite values do not."""
    size, me = root.size, root.rank or 0
    last = me == size - 1
    with shared_folder(root) as folder:
        call_on_root(root.link, lambda: _arrays(folder))
        tas, pr = (mpi.open(str(folder / f"{name}.nc"), root)[name] for name in ("tas", "pr"))
        even = Distribution.regular((6,), "b", (size,))
        locals_ = [mpi.local(a, even, root) for a in (tas, pr)]
        if size > 1:
            raises_on_all(
                root, "processes 0 and .* differ", lambda: mpi.open(str(folder / ("pr.nc" if last else "tas.nc")), root)
            )
            raises_on_all(root, "local: processes 0 and .* differ", lambda: mpi.local(pr if last else tas, even, root))
            raises_on_all(root, "reduce: processes 0 and .* differ", lambda: mpi.reduce(locals_[last], "sum", None, root))
            for operation in (np.ones(2), lambda: 0):
                expected = operation if last else "sum"
                raises_on_all(root, "give one of", lambda o=expected: mpi.reduce(locals_[0], o, None, root))  # type: ignore[misc]
        raises_on_all(root, "invalid dimensions 1.5; give a list", lambda: mpi.reduce(locals_[0], "mean", 1.5, root))
        # Text is read by one, like other small arrays.
        with mock.patch.object(aa.MasterArray, "read", autospec=True, side_effect=aa.MasterArray.read) as reads:
            owners = mpi.open(str(folder / "stations.nc"), root)["owner"]
            schedule = mpi.local(owners, Distribution.regular((5,), "c", (size,)), root)
            assert schedule.buffer.tolist() == NAMES[::-1][me::size]
        assert sum(root.link.allgather(reads.call_count)) == 1
    values = np.arange(4.0 * size)
    values[-1] = np.inf
    export = Exporter(section(values, d := Distribution.regular(values.shape, "b", (size,)), me), d.dim_data(me))
    for given in (export, LocalArray.from_distarray(export)):
        assert mpi.reduce(given, "sum", None, root).buffer == np.inf
        assert np.isnan(mpi.reduce(given, "std", 0, root).buffer)
        assert mpi.reduce(given, "min", "dim_0", root).buffer == 0


def check_stores(root: ProcessGroup) -> None:
    """A conflicting store is not changed, and failed writes leave nothing."""
    size = root.size
    even = Distribution.regular((6,), "b", (size,))
    with shared_folder(root) as folder:
        call_on_root(root.link, lambda: _arrays(folder))
        arrays = {name: mpi.open(str(folder / f"{name}.nc"), root)[name] for name in ("tas", "pr", "later")}
        local = {name: mpi.local(a, even, root) for name, a in arrays.items()}
        store = folder / "out.zarr"
        mpi.write(local["tas"], root, store)
        raises_on_all(
            root, "the stored coordinate 'time' differs.*variable 'later' in", lambda: mpi.write(local["later"], root, store)
        )
        mpi.write(local["pr"], root, store)
        short = mpi.local(arrays["pr"].lazy[:3], Distribution.regular((3,), "b", (size,)), root)
        raises_on_all(
            root,
            "dimension 'time' has size 3, that of '.*' has size 6.*variable 'short' in",
            lambda: mpi.write(short, root, store, "short"),
        )
        raises_on_all(root, "not a Zarr group", lambda: mpi.write(local["pr"], root, store / "pr"))
        raises_on_all(root, "invalid path None", lambda: mpi.write(local["pr"], root, None))  # type: ignore[arg-type]
        _fail_to_write(root, store, local["pr"], "again")
        mpi.write(local["pr"], root, store, "again")
        height = mpi.open(str(folder / "stations.nc"), root)["height"]
        mpi.write(mpi.local(height, Distribution.regular((5,), "b", (size,)), root), root, store)
        with xarray.open_zarr(store) as result:
            assert set(result.variables) == {"time", "tas", "pr", "again", "height", "name"}
            assert result["again"].values.tolist() == list(range(6)) and result["name"].values[3] == "Ålesund"
        lazily = mpi.local(arrays["later"], even, root, collective=False)
        call_on_root(root.link, lambda: (folder / "later.nc").unlink())
        words = _error(lambda: mpi.write(lazily, root, folder / "none.zarr"))
        assert "later.nc" in words and len(set(root.link.allgather(words))) == 1 and not (folder / "none.zarr").exists()


def _error(call: Callable[[], Any]) -> str:
    try:
        call()
    except aa.AggarrayError as error:
        return str(error)
    return "no error"


def _fail_to_write(root: ProcessGroup, store: Path, local: LocalArray, name: str) -> None:
    """Write with a full disk on the last process."""
    put = Store.put

    def full(self: Store, *arguments: Any) -> None:
        if root.rank == root.size - 1:
            raise OSError("disk full")
        put(self, *arguments)

    with mock.patch.object(Store, "put", full):
        raises_on_all(root, "OSError: disk full", lambda: mpi.write(local, root, store, name))
    assert name not in zarr.open_group(store, mode="r", use_consolidated=False)
    other = store.with_name("new.zarr")
    with mock.patch.object(Store, "_create_coordinates", side_effect=OSError(28, "No space left on device")):
        raises_on_all(root, "cannot be written: No space left", lambda: mpi.write(local, root, other, name))
    assert not list(other.parent.glob("*new.zarr*"))
    root.link.allgather(None)


MISTAKE_CHECKS: tuple[Callable[[ProcessGroup], None], ...] = (
    check_other_calls,
    check_sums_of_large_arrays,
    check_other_arrays,
    check_stores,
)
