"""Tables of cases: files to write, the expected outcome, and its check.

A case is a function that takes a `Folder`, writes files into it and returns an `Outcome`. Expected values are computed with
NumPy from the written values, without the package under test. `verify` compares them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import zarr

import aggarray as aa
from tests.support.netcdf import cube, write
from tests.support.netcdf import field as field_of

Made = dict[str, tuple[Any, ...]]
LATS, LONS = (10.0, 20.0, 30.0), (0.0, 5.0)
NV = "nv"


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """One expected array: values and some of its coordinates.

    ``values``: NaN or masked where missing; other fields are not compared where they are None. ``rtol``: of values and
    coordinates, 0 for equality; ``attrs``: of the array, else of its files; ``uris``: base names of the files that are used.
    """

    values: Any
    coords: Mapping[str, Any]
    dimensions: tuple[str, ...] | None = ("time", "lat", "lon")
    name: str = "tas"
    units: str | None = "K"
    dtype: Any = None
    rtol: float = 0.0
    pmshape: tuple[int, ...] | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    uris: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ExpectedRefusal:
    """One expected refusal.

    ``rule``: several alternatives are separated by "|", "" is any; ``texts``: regular expressions that its reason matches.
    """

    rule: str
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """One expected problem of a check.

    ``texts``: regular expressions that its message matches.
    """

    kind: str
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The expected arrays, refusals, skipped files and problems of a case.

    ``skipped``: base names; ``problems``: of `check`, None if it is not run; ``rules``: fields of Rules, or the name of a
    preset; ``as_given``: the files are not shuffled.
    """

    arrays: Sequence[Expected]
    refusals: Sequence[ExpectedRefusal] = ()
    rules: Mapping[str, Any] | str = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    problems: Sequence[Problem] | None = None
    as_given: bool = False

    def make_rules(self) -> Any:
        """Return the rules.

        They are made late, so that invalid rules fail only their own case.
        """
        return getattr(aa.Rules, self.rules)() if isinstance(self.rules, str) else aa.Rules(**self.rules)


def one(expected: Expected, **more: Any) -> Outcome:
    """Return the outcome of a single array without refusals."""
    return Outcome([expected], **more)


class Folder:
    """The folder of the files of a case; names have no suffix."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths: list[str] = []

    def __call__(self, name: str, made: Mapping[str, tuple[Any, ...]], attrs: Any = None, **how: Any) -> None:
        """Write netCDF; ``how`` as in `write`."""
        self.paths.append(write(self.root / f"{name}.nc", made, attrs, **how))

    def raw(self, name: str, content: bytes) -> None:
        """Write bytes."""
        path = self.root / name
        path.write_bytes(content)
        self.paths.append(str(path))

    def stored(self, name: str, made: Mapping[str, tuple[Any, ...]], **how: Any) -> None:
        """Write netCDF-4 with storage options of netCDF4's createVariable.

        They apply to data variables only.
        """
        path = str(self.root / f"{name}.nc")
        with netCDF4.Dataset(path, "w") as file:
            for key, (dimensions, values, *rest) in made.items():
                values = np.asarray(values)
                if how.get("endian") == "big" and len(dimensions) > 1:
                    values = values.astype(values.dtype.newbyteorder(">"))
                for d, n in zip(dimensions, values.shape, strict=True):
                    if d not in file.dimensions:
                        file.createDimension(d, n)
                variable = file.createVariable(key, values.dtype, dimensions, **(how if len(dimensions) > 1 else {}))
                variable.setncatts(rest[0] if rest else {})
                variable[...] = values
        self.paths.append(path)

    def hdf5(self, name: str, made: Mapping[str, tuple[Any, ...]]) -> None:
        """Write HDF5 with dimension scales, without netCDF metadata."""
        path = str(self.root / f"{name}.h5")
        with h5py.File(path, "w") as file:
            for key, (_, values, *rest) in made.items():
                file[key] = values
                file[key].attrs.update(rest[0] if rest else {})
            for key, (dimensions, *_) in made.items():
                if dimensions == (key,):
                    file[key].make_scale(key)
            for key, (dimensions, *_) in made.items():
                for axis, d in enumerate(dimensions):
                    if dimensions != (key,) and d in file:
                        file[key].dims[axis].attach_scale(file[d])
        self.paths.append(path)

    def zarr(self, name: str, made: Mapping[str, tuple[Any, ...]], version: int) -> None:
        """Write a Zarr store of a format version as xarray would."""
        path = str(self.root / f"{name}.zarr")
        group = zarr.open_group(path, mode="w", zarr_format=version)
        for key, (dimensions, values, *rest) in made.items():
            attrs = dict(rest[0] if rest else {})
            # In version 2 a fill value is a missing value: these files have none.
            named = {"dimension_names": dimensions} if version == 3 else {"fill_value": None}
            if version == 2:
                attrs["_ARRAY_DIMENSIONS"] = list(dimensions)
            values = np.asarray(values)
            array = group.create_array(
                key, shape=values.shape, dtype=values.dtype, chunks=values.shape, attributes=attrs, **named
            )
            array[...] = values
        self.paths.append(path)


class Cases(list[Callable[[Folder], Outcome]]):
    """A table of cases: decorate a function to add it."""

    def __call__(self, case: Callable[[Folder], Outcome]) -> Callable[[Folder], Outcome]:
        self.append(case)
        return case


# What cases write


def changed(made: Made, name: str, values: Any = None, **attrs: Any) -> Made:
    """Return variables, one of them with other values or attributes.

    An attribute of None is removed.
    """
    dimensions, old, *rest = made[name]
    all_attrs = {k: v for k, v in {**(rest[0] if rest else {}), **attrs}.items() if v is not None}
    return {**made, name: (dimensions, old if values is None else values, all_attrs)}


def with_bounds(made: Made, name: str, half: float, **attrs: Any) -> Made:
    """Return variables with bounds for a coordinate: values ± ``half``.

    The pairs are in the order of the values.
    """
    dimensions, values, *_ = made[name]
    values = np.asarray(values, "f8")
    down = values.ndim == 1 and len(values) > 1 and values[1] < values[0]
    pairs = edges(values, half)[..., ::-1] if down else edges(values, half)
    return {**changed(made, name, bounds=f"{name}_bnds"), f"{name}_bnds": ((*dimensions, NV), pairs, attrs)}


def edges(values: Any, half: float) -> np.ndarray:
    """Return pairs around values, the lower first."""
    return np.stack([np.asarray(values, "f8") - half, np.asarray(values, "f8") + half], axis=-1)


def scalar_time(step: float, lats: Any = LATS, lons: Any = LONS) -> Made:
    """Return variables of one step whose time is a scalar coordinate."""
    made = cube([step], lats, lons)
    made["time"] = ((), np.float64(step), made["time"][2])
    made["tas"] = (("lat", "lon"), field_of([step], lats, lons)[0], {**made["tas"][2], "coordinates": "time"})
    return made


def turned(made: Made, dimension: str) -> Made:
    """Return variables that run the other way along a dimension."""
    result = {}
    for name, (dimensions, values, *rest) in made.items():
        flips = tuple(slice(None, None, -1 if d == dimension else 1) for d in dimensions)
        values = np.asarray(values)[flips]
        if name == f"{dimension}_bnds":
            values = values[:, ::-1]
        result[name] = (dimensions, values, *rest)
    return result


def tas(times: Any, lats: Any = LATS, lons: Any = LONS, **more: Any) -> Expected:
    """Return the expected array that `cube` writes for these coordinates."""
    coords = {"time": times, "lat": lats, "lon": lons, **more.pop("coords", {})}
    return Expected(more.pop("values", field_of(times, lats, lons)), coords, **more)


# Comparing


def verify(agg: Any, outcome: Outcome, rng: np.random.Generator) -> None:
    """Compare all arrays, refusals, skipped files and problems."""
    result, problems = list(agg), []
    for expected in outcome.arrays:
        faults = [_faults(array, expected, rng) for array in result]
        fits = next((n for n, fault in enumerate(faults) if not fault), None)
        if fits is None:
            problems.append(f"no array is {expected.name} {np.shape(expected.values)}: {faults}")
        else:
            result.pop(fits)
    shown = [f"{a.name}{a.shape}" for a in agg]
    assert not problems and not result, f"{problems or ''} left over: {result}; arrays {shown}; {agg.refusals}"
    _verify_refusals(agg.refusals, outcome.refusals)
    assert sorted(Path(s.file).name for s in agg.skipped) == sorted(outcome.skipped), agg.skipped
    if outcome.problems is not None:
        _verify_report(agg.check(), outcome.problems)


def _verify_refusals(refusals: Sequence[Any], expected_refusals: Sequence[ExpectedRefusal]) -> None:
    left = list(refusals)
    for expected in expected_refusals:
        fits = [
            r for r in left if (not expected.rule or r.rule in expected.rule.split("|")) and _matches(r.reason, expected.texts)
        ]
        assert fits, f"{expected} is not among {left}"
        left.remove(fits[0])
    assert not left, f"not expected: {left}"
    for refusal in refusals:
        assert refusal.files and "\n" not in refusal.reason
        for uri in refusal.files:
            assert Path(uri).name in refusal.reason, f"{refusal.reason!r} does not name {uri}"


def _verify_report(report: Any, problems: Sequence[Problem]) -> None:
    left = list(report.problems)
    for expected in problems:
        fits = [p for p in left if p.kind == expected.kind and _matches(p.message, expected.texts)]
        assert fits, f"{expected} is not among {left}"
        left.remove(fits[0])
    assert not left, f"not expected: {left}"
    if not problems:
        assert report.ok
    if any(p.kind in ("gap", "hole") for p in problems):
        assert not report.ok


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return all(re.search(p, text) for p in patterns)


def _faults(array: Any, expected: Expected, rng: np.random.Generator) -> str:
    """Return how an array differs from the expected one, "" if it does not."""
    for what in ("name", "dimensions", "units", "dtype", "pmshape"):
        wanted, given = getattr(expected, what), getattr(array, what)
        if wanted is not None and wanted != given:
            return f"{what} {given!r}, not {wanted!r}"
    for key, value in expected.attrs.items():
        given = array.attrs.get(key, array.file_attrs.get(key))
        if not np.array_equal(given, value):
            return f"attribute {key} {given!r}, not {value!r}"
    if expected.uris is not None:
        given = sorted({Path(p.data.uri).name for p in array.partitions if p.data is not None})
        if given != sorted(expected.uris):
            return f"made of {given}, not {expected.uris}"
    return _value_faults(array, expected, rng)


def _value_faults(array: Any, expected: Expected, rng: np.random.Generator) -> str:
    values = expected.values if isinstance(expected.values, np.ma.MaskedArray) else np.asarray(expected.values)
    if array.shape != values.shape:
        return f"shape {array.shape}, not {values.shape}"
    for key in ((...,), tuple(_slice(n, rng) for n in array.shape)):
        if not _same(array, key, values[key], expected.rtol):
            return f"values at {key}: {array[key]!r}, not {values[key]!r}"
    for name, wanted in expected.coords.items():
        if name not in array.coords:
            return f"no coordinate {name}: {list(array.coords)}"
        wanted = np.asarray(wanted)
        if array.coords[name].shape != wanted.shape:
            return f"{name} has shape {array.coords[name].shape}, not {wanted.shape}"
        if not _same(array.coords[name], (...,), wanted, expected.rtol or 1e-14):
            return f"{name} {array.coords[name][...]!r}, not {wanted!r}"
    return ""


def _slice(size: int, rng: np.random.Generator) -> slice:
    low, high = sorted(rng.integers(0, size + 1, 2).tolist())
    return (slice(low, high), slice(low, high, 2), slice(None, None, -1))[int(rng.integers(3))]


def _same(array: Any, key: Any, wanted: Any, rtol: float) -> bool:
    if isinstance(wanted, np.ma.MaskedArray):
        given = array.read(key, masked=True)
        mask = np.ma.getmaskarray(wanted)
        return np.array_equal(np.ma.getmaskarray(given), mask) and np.array_equal(given.data[~mask], wanted.data[~mask])
    given = array[key]
    if given.shape != wanted.shape:
        return False
    if wanted.dtype.kind in "UTO":
        return bool(given.dtype.kind == "T" and given.tolist() == wanted.tolist())
    if rtol:
        return bool(np.allclose(given, wanted, rtol, rtol, equal_nan=True))
    return np.array_equal(given, wanted, equal_nan=wanted.dtype.kind == "f")


def fingerprint(agg: Any) -> tuple[Any, ...]:
    """Return all properties that are independent of the order of files."""
    arrays = []
    for a in agg:
        pieces = [(p.index, p.location, None if p.data is None else p.data.uri) for p in a.partitions]
        coords = [(n, c.units, c.calendar, str(c.dtype), repr(c[...].tolist())) for n, c in a.coords.items()]
        parameters = (a.name, a.dimensions, a.directions, a.units, a.calendar, str(a.dtype), repr(a.fill_value))
        arrays.append((parameters, repr(a.attrs), repr(a.file_attrs), repr(a[...].tolist()), coords, repr(pieces)))
    return tuple(arrays), tuple(sorted((r.rule, r.files, r.reason) for r in agg.refusals))
