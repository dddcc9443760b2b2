"""Fuzz target: an index of aggarray with any documents and columns is opened or refused.

An input is ``{"document": {...}, "records": {...}, "integers": [...], "texts": text, "values": hexadecimal, "blocks": ...}``:
the content of the group of the file. A subclass of the reader holds the columns, so that HDF5 is not fuzzed.
"""

import functools
import json
import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import h5py
import numpy as np

import aggarray as aa
from aggarray import index
from aggarray.aggregate.rules import DEFAULT_RULES
from aggarray.index import GROUP, loading
from aggarray.index.store import Reader
from aggarray.opening import sources
from aggarray.storage.access import Access
from tests.fuzz.target import Target, check, home, read_some, refusing
from tests.fuzz.trees import dumped, loaded, mutator
from tests.support.netcdf import TIME, cube, write

_NAMES = """
    is at start step count lengths texts dtype shape edges refs file variable template variables memory starts steps picks
    dimensions directions coords known rows cuts chosen counts index present geometries templates attributes stamps
    details named chunks layouts names layout columns tuple list mapping bytes <f4 <f8 <i8 >i2 |b1 <M8[s] <U3 text
    encoding stored viewed missing valid scale_factor add_offset time lat tas ../x.nc /etc/passwd http://a/b.nc file:///x
    rules how refusals skipped duplicates K 360_day
"""
_WORDS: tuple[Any, ...] = (
    *_NAMES.split(),
    *(
        "days since 2000-01-01",
        {"is": [0]},
        {"is": [0, 1]},
        {"is": []},
        {"start": 0, "step": 1, "count": 30},
    ),
    *(
        {"at": 0, "count": 3},
        {"tuple": [1, 2]},
        {"<f4": 1.0},
        {"<f8": [1.0, 2.0]},
    ),
    *(
        {"bytes": ["<f4", [1], "00000000"]},
        {"texts": [[1], ["a"]]},
        {"mapping": [["a", 1]]},
    ),
)
#: Modification time of every file that an index names.
_THEN = 1_600_000_000_000_000_000


class _Reader(Reader):
    """Reader of the columns of an input."""

    given: dict[str, np.ndarray] = {}  # noqa: RUF012

    @contextmanager
    def opened(self) -> Any:
        """Yield the columns of the input."""
        with self.index_errors():
            self._check_version(2, 1)
            self._thread.current = SimpleNamespace(loaded={}, values={})
            yield self

    def _length(self, name: str) -> int:
        return len(self.given[name])

    def _stored(self, name: str, start: int, stop: int) -> np.ndarray:
        return self.given[name][start:stop]


def _group(found: Any) -> dict[str, np.ndarray] | None:
    """Return the columns of an input; None if it has none."""
    if not isinstance(found, dict):
        return None
    made: dict[str, np.ndarray] = {}
    try:
        for name in ("document", "records"):
            made[name] = np.frombuffer(dumped(found.get(name)), np.uint8)
        made["integers"] = np.array(found.get("integers", []), np.int64)
        made["texts"] = np.frombuffer(found.get("texts", "").encode("utf-8", "surrogateescape"), np.uint8)
        for name in ("values", "blocks"):
            made[name] = np.frombuffer(bytes.fromhex(found.get(name, "")), np.uint8)
    except (TypeError, ValueError, OverflowError, AttributeError, RecursionError):
        return None
    return made


@functools.cache
def _files() -> Path:
    """Write the files that the seeds index, with constant modification times."""
    folder = home() / "index"
    folder.mkdir()
    for number in range(3):
        times = np.arange(2.0) + 2 * number
        write(folder / f"c{number}.nc", cube(times), {"title": "a"}, "NETCDF3_CLASSIC")
        packed = {"units": "K", "scale_factor": 0.5, "_FillValue": np.int16(-9), "valid_max": np.int16(90)}
        lines = {"time": (("time",), times, TIME), "v": (("time",), np.arange(2, dtype="i2"), packed)}
        write(folder / f"l{number}.nc", lines, {}, "NETCDF3_CLASSIC")
        rows = np.array([2, 0, 1], "i4") + np.int32(number)
        ragged = {
            "station": (("station",), np.arange(3, dtype="i4") + 3 * number, {"cf_role": "timeseries_id"}),
            "size": (("station",), rows, {"sample_dimension": "obs"}),
            "obs": (("obs",), np.arange(rows.sum(), dtype="f4"), {"units": "m"}),
            "tas": (("obs",), np.arange(rows.sum(), dtype="f4"), {"units": "K", "coordinates": "obs"}),
        }
        write(folder / f"r{number}.nc", ragged, {"featureType": "timeSeries"}, "NETCDF3_64BIT_OFFSET")
    for path in folder.iterdir():
        os.utime(path, ns=(_THEN, _THEN))
    (folder / "index.nca").write_bytes(bytes(1 << 13))
    return folder


def run(data: bytes) -> bool:
    """Open an index, print it, check it and read from it."""
    group = _group(loaded(data))
    if group is None:
        return False
    path = str(_files() / "index.nca")
    how = index.Opening(Access(roots=(os.path.realpath(_files()),)))
    with mock.patch.object(_Reader, "given", group), mock.patch.object(loading, "Reader", _Reader), refusing() as refused:
        result = sources._restored(path, how, DEFAULT_RULES, None)
        repr(result)
        result._repr_html_()
        with refusing():
            result._provenance.structures()
            result._provenance.others()
        with refusing():
            result.check()
        for array in list(result)[:4]:
            _look_at(array)
    return not refused


def _look_at(array: aa.MasterArray) -> None:
    repr(array)
    for one in (array, *list(array.coords.values())[:3]):
        with refusing():
            read_some(one)
    with refusing():
        # The partitions of a ragged array are those of its samples.
        flat = getattr(array, "flat", array)
        for partition in list(flat.partitions)[:4] if len(flat.partitions) <= 1 << 12 else ():
            within = (0 <= a <= b <= n for (a, b), n in zip(partition.location, flat.shape, strict=True))
            check(all(within), f"{partition!r:.200}")


def _columns(path: Path) -> bytes:
    """Return the content of the group of an index as an input."""
    with h5py.File(path) as file:
        group = {name: np.asarray(file[GROUP][name][...]) for name in file[GROUP]}
    result: dict[str, Any] = {k: json.loads(group.pop(k).tobytes()) for k in ("document", "records")}
    result["integers"] = group["integers"].tolist() if "integers" in group else []
    result["texts"] = group["texts"].tobytes().decode() if "texts" in group else ""
    return dumped({**result, **{k: group[k].tobytes().hex() for k in ("values", "blocks") if k in group}})


def seeds() -> dict[str, bytes]:
    """Return indexes of arrays with coordinates, of packed arrays and of ragged arrays."""
    folder, result = _files(), {}
    sources = {"cube": ["c0.nc", "c1.nc", "c2.nc"], "line": ["l0.nc", "l1.nc"], "one": ["l2.nc"], "ragged": ["r0.nc", "r1.nc"]}
    for name, files in sources.items():
        path = home() / "index" / f"{name}.nca"
        aa.open([folder / file for file in files], variables=None).save(path)
        result[name] = _columns(path)
        path.unlink()
    return result


TARGETS = (Target("index", run, seeds, mutator(_WORDS), 1 << 15, trees=True),)
