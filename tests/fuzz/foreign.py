"""Fuzz targets: aggregation variables of CFA-0.4, CFA-0.6.2 and CF-1.13 are read or refused.

An input is ``{"attrs": {...}, "sizes": {dimension: n}, "variables": {name: {"dtype", "dimensions", "values", "attrs"}}}``: the
structure of a file as returned by a scan, without the file.
"""

import functools
import json
from math import prod
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import aggarray as aa
from aggarray import index
from aggarray.formats.base import Structure, Variable
from aggarray.index import foreign as foreign_index
from aggarray.index.conventions.cfa04 import parse_part
from aggarray.index.conventions.foreign import convention_of
from aggarray.index.validation import check_partitions
from aggarray.opening.joining import foreign_arrays
from aggarray.storage.access import Access
from tests.fuzz.target import MOST_READ, Target, check, home, read_some, refusing
from tests.fuzz.trees import dumped, loaded, mutator, unfolded
from tests.support.netcdf import write

_NAMES = """
    cfa_array cfa_dimensions cf_role cfa_variable cfa_private pmdimensions pmshape base Partitions index location subarray
    shape file ncvar varid part pdimensions pdirections punits reverse pcalendar flip format dtype aggregated_dimensions
    aggregated_data map uris identifiers address unique_values value [] [[0,1,1],[0,3,1]] t a.nc b.nc ./a.nc ../a.nc
    /etc/passwd http://x/a.nc file:///a.nc a%20.nc tas /tas g/tas K degC 360_day scale_factor add_offset _FillValue
    missing_value valid_range i8 f4 T
"""
_WORDS: tuple[Any, ...] = (
    *_NAMES.split(),
    *(
        "location: l file: f address: a",
        "map: m uris: u identifiers: i",
        "map: m unique_values: u",
    ),
    *(
        "[[0, 1, 1], (0, 3)]",
        "[0, 9]",
        "(1, 2, 3,)",
        "[0, 999999999999999999, 1]",
        "time x",
        "",
        "\x00",
    ),
    *(
        "days since 2000-01-01",
        {"$scalar": ["i4", -1]},
        {"$scalar": ["f4", 0.5]},
        {"$array": ["i4", [1, 2]]},
    ),
    *({"$array": ["T", ["a", "b"]]},),
)
_VALUES = np.arange(20, dtype="f4").reshape(5, 4)
#: Limits on the number and the size of dimensions in a file.
_DIMENSIONS, _LONGEST = 32, 1 << 62


@functools.cache
def _folder() -> Path:
    """Write two fragments of two and three rows with four values each."""
    folder = home() / "foreign"
    for name, rows in (("a", _VALUES[:2]), ("b", _VALUES[2:])):
        write(folder / f"{name}.nc", {"tas": (("time", "x"), rows, {"units": "K"})}, format="NETCDF3_CLASSIC")
    return folder


def _structure(found: Any) -> tuple[Structure, dict[str, np.ndarray]] | None:
    """Return a possible result of a scan, and the values of its variables; None if no file could contain it."""
    given = unfolded(found)
    sizes, variables, attrs = (given.get(k) for k in ("sizes", "variables", "attrs")) if isinstance(given, dict) else (0, 0, 0)
    if not (isinstance(sizes, dict) and isinstance(variables, dict) and isinstance(attrs, dict)):
        return None
    if not all(type(n) is int and 0 <= n < _LONGEST for n in sizes.values()) or len(variables) > 20:
        return None
    made, values = [], {}
    for name, one in variables.items():
        variable = _variable(name, one, sizes)
        if variable is None:
            return None
        made.append(variable[0])
        values[name] = variable[1]
    own = _attributes(attrs)
    return Structure(str(_folder() / "index.nc"), "netCDF4", own, tuple(made), {}, sizes=sizes), values


def _variable(name: str, one: Any, sizes: dict[str, int]) -> tuple[Variable, np.ndarray] | None:
    if not isinstance(one, dict) or not name or name != name.strip("/"):
        return None
    dimensions, values, kind = one.get("dimensions", []), one.get("values", 0), one.get("dtype", "f4")
    if not isinstance(dimensions, list) or len(set(map(str, dimensions))) < len(dimensions) or len(dimensions) > _DIMENSIONS:
        return None
    if not all(isinstance(d, str) and d in sizes for d in dimensions) or not isinstance(one.get("attrs", {}), dict):
        return None
    shape = tuple(sizes[d] for d in dimensions)
    try:
        dtype = np.dtypes.StringDType() if kind == "T" else np.dtype(kind)
        given = np.array(values if kind != "T" else np.array(values, str), dtype)
        if dtype.kind not in "biufT" or dtype.byteorder == ">":
            return None
        held = (
            np.resize(given, shape) if prod(shape) <= MOST_READ else np.broadcast_to(given.reshape(-1)[:1].reshape(()), shape)
        )
    except (TypeError, ValueError, OverflowError, SyntaxError):
        return None
    known = held if prod(shape) <= MOST_READ and tuple(dimensions) == (name,) else None
    return Variable(name, dtype, shape, tuple(dimensions), _attributes(one.get("attrs", {})), known), held


def _attributes(given: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes that a scan can return: text, NumPy numbers, one-dimensional arrays."""
    kinds = (str, np.number, np.ndarray)
    return {k: v for k, v in given.items() if isinstance(v, kinds) and getattr(v, "ndim", 0) <= 1 and _plain(v)}


def _plain(value: Any) -> bool:
    return isinstance(value, str) or value.dtype.kind in "iufT"


class _Handle:
    """An open file with the values of an input."""

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        self._values = values

    def read(self, name: str, box: tuple[slice, ...]) -> np.ndarray:
        """Return the values of a box."""
        return np.array(self._values[name][box])

    def close(self) -> None:
        """Do nothing."""


def run(data: bytes) -> bool:
    """Read an aggregation file and its arrays."""
    result = _structure(loaded(data))
    if result is None:
        return False
    structure, values = result
    kind = convention_of(structure)
    if kind is None:
        return False
    how = index.Opening(Access(roots=(str(_folder().resolve()),)))
    with mock.patch.object(foreign_index, "open_file", lambda path: _Handle(values)), refusing() as refused, how.access.reach():
        for matrix in kind.read(structure, lambda name: np.array(values[name])).matrices.values():
            try:
                check_partitions(matrix)
            except ValueError as error:
                check(False, f"a matrix that does not hold together: {error}")
        for array in foreign_arrays(structure, kind, how)[:4]:
            _look_at(array)
    return not refused


def _look_at(array: aa.MasterArray) -> None:
    repr(array)
    with refusing():
        read_some(array)
    with refusing():
        for partition in list(array.partitions)[:4] if len(array.partitions) <= 1 << 12 else ():
            within = (0 <= a <= b <= n for (a, b), n in zip(partition.location, array.shape, strict=True))
            check(all(within), f"{partition!r:.200}")


def run_part(data: bytes) -> bool:
    """Parse a text, or a list, that describes a part of a sub-array."""
    text = data.decode("utf-8", "surrogateescape")
    parsed = loaded(data)
    for given in (text, parsed):
        try:
            result = parse_part(given)
        except ValueError as error:
            check("\n" not in str(error), "an error of several lines")
            continue
        for one in result:
            if isinstance(one, slice):
                check(0 <= one.start <= one.stop and one.step >= 1, f"{one}")
            else:
                check(one.dtype == np.int64 and (np.diff(one) > 0).all() and (one >= 0).all(), f"{one}")
    return bool(text)


def _partition(number: int, **more: Any) -> dict[str, Any]:
    rows = (2, 3)[number]
    sub = {"shape": [rows, 4], "file": f"{'ab'[number]}.nc", "ncvar": "tas", "format": "netCDF", "dtype": "float32"}
    return {"index": [number], "location": ([[0, 1], [0, 3]], [[2, 4], [0, 3]])[number], "subarray": sub, **more}


def seeds() -> dict[str, bytes]:
    """Return aggregation files of all conventions over the same two fragments."""
    sizes = {"time": 5, "x": 4, "i": 2, "j": 2, "ft": 2, "fx": 1}
    time = {"dtype": "f8", "dimensions": ["time"], "values": [0, 1, 2, 3, 4], "attrs": {"units": "days since 2000-01-01"}}
    whole = {"pmdimensions": ["time"], "pmshape": [2], "base": "", "Partitions": [_partition(0), _partition(1)]}
    cut = {
        **whole,
        "Partitions": [_partition(0, part="[[0, 1, 1], (0, 1, 2, 3)]", reverse=["x"]), _partition(1, punits="degC")],
    }
    spread = np.array([[2, 3], [4, -1]]).ravel().tolist()
    sizes_of = {"dtype": "i4", "dimensions": ["i", "j"], "values": spread, "attrs": {"_FillValue": {"$scalar": ["i4", -1]}}}
    names = {"dtype": "T", "dimensions": ["ft", "fx"], "values": ["a.nc", "b.nc"]}
    tas = {"dtype": "T", "dimensions": [], "values": "tas"}

    def old(array: Any) -> dict[str, Any]:
        attrs = {"cf_role": "cfa_variable", "cfa_dimensions": "time x", "units": "K", "cfa_array": json.dumps(array)}
        return {"attrs": {"Conventions": "CFA-0.4"}, "sizes": sizes, "variables": {"time": time, "tas": {"attrs": attrs}}}

    def new(data: str, **more: Any) -> dict[str, Any]:
        attrs = {"units": "K", "aggregated_dimensions": "time x", "aggregated_data": data}
        return {"attrs": {"Conventions": "CF"}, "sizes": sizes, "variables": {"time": time, "tas": {"attrs": attrs}, **more}}

    values = {"dtype": "f4", "dimensions": ["ft", "fx"], "values": [1, 2]}
    result = {
        "cfa04": old(whole),
        "cfa04_parts": old(cut),
        "cfa062": new("location: l file: f address: a", l=sizes_of, f=names, a=tas),
        "cfa062_value": new("location: l value: v", l=sizes_of, v=values),
        "cf113": new("map: m uris: u identifiers: i", m=sizes_of, u=names, i=tas),
        "cf113_values": new("map: m unique_values: v", m=sizes_of, v=values),
    }
    return {name: dumped(one) for name, one in result.items()}


def seeds_part() -> dict[str, bytes]:
    """Return texts of parts."""
    texts = ("[[2, 6, 2], (0, 3)]", "[0, 4, 1]", "[]", "()", "[(1,)]", "[[0, 9], [5, 4, 1]]", "[[0,1,1],(2,5,9)]")
    return {str(number): text.encode() for number, text in enumerate(texts)}


TARGETS = (
    Target("cfa", run, seeds, mutator(_WORDS), 1 << 13, trees=True),
    Target("cfa_part", run_part, seeds_part, longest=512),
)
