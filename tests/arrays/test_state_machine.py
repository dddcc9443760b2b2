"""Stateful tests of lazy operations, in any order and number, against NumPy.

A state machine draws an array of pieces that differ in packing, direction, units, order of dimensions and storage (memory,
files of several formats), and applies lazy operations to it. `DEPTH=50` runs longer sequences.
"""

import itertools
import os
import pickle
import shutil
import tempfile
from dataclasses import dataclass, replace
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.dap import Distribution
from aggarray.read import close_files
from tests.support.examples import examples
from tests.support.tilings import FILL, Tile, keys, pick, tilings

pytestmark = pytest.mark.quick

DEPTH = int(os.environ.get("DEPTH", "1"))
#: What one metre is in the units that arrays are converted to.
UNITS = {"m": 1.0, "km": 0.001, "cm": 100.0}
FORMATS = ("NETCDF3_CLASSIC", "NETCDF4", "NETCDF4 chunked", "memory")


@dataclass(frozen=True)
class Model:
    """Expected array: values as float64 in its units, mask, and parameters."""

    values: np.ndarray
    mask: np.ndarray
    dimensions: tuple[str, ...]
    directions: tuple[bool, ...]
    dtype: np.dtype[Any]
    units: str = "m"
    #: Whether values went through arithmetic that may round.
    rounded: bool = False

    def picked(self, key: tuple[Any, ...]) -> "Model":
        left = [n for n, k in enumerate(key) if not isinstance(k, int)]
        names = tuple(self.dimensions[n] for n in left)
        turned = tuple(self.directions[n] != _runs_back(key[n]) for n in left)
        return replace(self, values=pick(self.values, key), mask=pick(self.mask, key), dimensions=names, directions=turned)

    def check(self, found: Any, masked: bool) -> None:
        """Compare values that were read with these."""
        assert found.shape == self.values.shape and found.dtype == self.dtype
        if masked:
            np.testing.assert_array_equal(np.ma.getmaskarray(found), self.mask)
        there = ~self.mask
        limit = {"f": 1e-6 if self.dtype.itemsize == 4 else 1e-12}.get(self.dtype.kind, 0) if self.rounded else 0
        np.testing.assert_allclose(np.ma.getdata(found)[there].astype("f8"), self.values[there], rtol=limit)
        if not masked and self.dtype.kind == "f":
            assert np.isnan(found[self.mask]).all()


def _runs_back(part: Any) -> bool:
    return isinstance(part, slice) and part.step is not None and part.step < 0


class Arrays(RuleBasedStateMachine):
    """One array, and its expected values."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.numbers = itertools.count()

    def teardown(self) -> None:
        close_files()
        shutil.rmtree(self.folder)

    @initialize(data=st.data())
    def begin(self, data: Any) -> None:
        tiling = data.draw(tilings())
        self.a = tiling.master(lambda tile: self.placed(tile, data.draw(st.sampled_from(FORMATS))))
        self.model = Model(tiling.values, tiling.mask, tiling.dimensions, tiling.directions, self.a.dtype)
        assert self.a.dtype == tiling.dtype or self.a.dtype.kind == "f"
        self.check()

    def placed(self, tile: Tile, where: str) -> SubArray:
        """Return a tile as a variable of a file, packed if its values are integers; or in memory."""
        values = tile.values.filled(FILL)
        if where == "memory" or not values.dtype.isnative or not values.size:
            return tile.in_memory()
        path = os.path.join(self.folder, f"{next(self.numbers)}.nc")
        with netCDF4.Dataset(path, "w", format=where.split()[0]) as file:
            for d, n in zip(tile.dimensions, values.shape, strict=True):
                file.createDimension(d, n)
            chunks = tuple(max(1, (n + 1) // 2) for n in values.shape)
            how = {"chunksizes": chunks, "compression": "zlib"} if "chunked" in where and values.ndim else {}
            made = file.createVariable("v", values.dtype, tile.dimensions, fill_value=values.dtype.type(FILL), **how)
            made.set_auto_maskandscale(False)
            made.units = tile.units
            made[...] = values
        result = SubArray.from_file(path, "v")
        return replace_directions(result, tile.directions)

    def check(self) -> None:
        a, model = self.a, self.model
        assert (a.shape, a.dimensions, a.directions) == (model.values.shape, model.dimensions, model.directions)
        assert (a.dtype, a.units) == (model.dtype, model.units)
        model.check(a.read(masked=True), masked=True)

    # What is lazy

    @rule(data=st.data())
    def select(self, data: Any) -> None:
        key = data.draw(keys(self.a.shape))
        self.a, self.model = self.a.lazy[key], self.model.picked(key)
        # Directions of single elements and of elements picked one by one are undefined.
        parts = [k for k in key if not isinstance(k, int)]
        told = [isinstance(k, slice) and n > 1 for k, n in zip(parts, self.a.shape, strict=True)]
        forward = tuple(m if t else f for m, t, f in zip(self.model.directions, told, self.a.directions, strict=True))
        self.model = replace(self.model, directions=forward)
        self.check()

    @rule(data=st.data())
    def transpose(self, data: Any) -> None:
        order = data.draw(st.permutations(range(self.a.ndim)))
        model = self.model
        names, forward = (tuple(p[i] for i in order) for p in (model.dimensions, model.directions))
        self.a = self.a.transpose(*names) if names else self.a.transpose()
        values, mask = model.values.transpose(order), model.mask.transpose(order)
        self.model = replace(model, values=values, mask=mask, dimensions=names, directions=forward)
        self.check()

    @rule(data=st.data())
    def flip(self, data: Any) -> None:
        model = self.model
        axes = data.draw(st.sets(st.integers(0, self.a.ndim - 1))) if self.a.ndim else set()
        names = [model.dimensions[i] for i in axes]
        self.a = self.a.flip(*names) if names else self.a
        forward = tuple(d != (i in axes) for i, d in enumerate(model.directions))
        values, mask = (np.flip(v, tuple(axes)) for v in (model.values, model.mask))
        self.model = replace(model, values=values, mask=mask, directions=forward)
        self.check()

    @rule(units=st.sampled_from(list(UNITS)))
    def to_units(self, units: str) -> None:
        model = self.model
        self.a = self.a.to_units(units)
        dtype = np.dtype("f8") if model.dtype.kind in "iu" else model.dtype
        values = model.values if units == model.units else model.values * (UNITS[units] / UNITS[model.units])
        self.model = replace(model, values=values, units=units, dtype=dtype, rounded=model.rounded or units != model.units)
        self.check()

    @rule(dtype=st.sampled_from(["f4", "f8", ">f8", "i4", "i8"]))
    def astype(self, dtype: str) -> None:
        model, expected = self.model, np.dtype(dtype).newbyteorder("=")
        if expected.kind == "i" and (model.rounded or np.isnan(model.values[~model.mask]).any()):
            return
        self.a, self.model = self.a.astype(dtype), replace(model, dtype=expected)
        self.check()

    @precondition(lambda self: self.a.ndim and self.a.shape[0] > 1)
    @rule(data=st.data())
    def concat(self, data: Any) -> None:
        """Cut the array in two parts, and join them again."""
        cut = data.draw(st.integers(1, len(self.a) - 1))
        self.a = aa.concat([self.a.lazy[:cut], self.a.lazy[cut:]], self.a.dimensions[0])
        self.check()

    @rule()
    def travel(self) -> None:
        self.a = pickle.loads(pickle.dumps(self.a))
        self.check()

    # What reads

    @rule(data=st.data(), masked=st.booleans(), threads=st.sampled_from([None, 1, 3]))
    def read(self, data: Any, masked: bool, threads: int | None) -> None:
        key = data.draw(keys(self.a.shape))
        expected = self.model.picked(key)
        expected.check(self.a.read(key, masked=masked, threads=threads), masked)
        out = np.empty(expected.values.shape, self.a.dtype)
        assert self.a.read(key, out=out) is out
        expected.check(out, False)

    @precondition(lambda self: self.a.ndim)
    @rule(data=st.data())
    def sections(self, data: Any) -> None:
        """Distribute the array, and join the sections again."""
        grid = [data.draw(st.integers(1, 3)) for _ in self.a.shape]
        types = [data.draw(st.sampled_from("bc")) for _ in self.a.shape]
        shared = Distribution.regular(self.a.shape, types, grid)
        for rank in range(shared.nprocs):
            local, where = self.a.local(shared, rank), np.ix_(*shared.indices(rank))
            part = replace(self.model, values=self.model.values[where], mask=self.model.mask[where])
            part.check(local.buffer, False)
        exports = [self.a.local(shared, rank) for rank in range(shared.nprocs)]
        again = MasterArray.from_locals(exports, dimensions=self.a.dimensions)
        np.testing.assert_array_equal(again[...], self.a[...])

    @rule()
    def partitions(self) -> None:
        """Read partition by partition, and compare with the array."""
        seen = np.zeros(self.a.shape, bool)
        for partition in self.a.partitions:
            where = tuple(slice(*ends) for ends in partition.location)
            assert not seen[where].any()
            seen[where] = True
            if partition.data is None:
                assert self.model.mask[where].all()
        assert seen.all()


def replace_directions(found: SubArray, directions: tuple[bool, ...]) -> SubArray:
    """Return a sub-array of a file without coordinates, with directions."""
    return replace(found, template=replace(found.template, directions=directions))


def test_arrays() -> None:
    how = settings(max_examples=examples(40 * DEPTH), stateful_step_count=12)
    with aa.set_options(threads=2):
        run_state_machine_as_test(Arrays, settings=how)
