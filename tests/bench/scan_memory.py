"""Memory of opening many small files of one array, by how the files differ.

Files that differ along one coordinate, that is scalar or not, that count time from a date of their own, that are tiles, or one
of each member are joined as columns; of overlapping files an array each is made. The column "memory", divided by the number of
files, gives bytes per file.
"""

import struct
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

from tests.bench.harness import Benchmark, Contestant, Size

#: Values of time, latitude and longitude, two each, and the date, which are replaced in the bytes of the files.
_MARKS, _DATE = (1111.3, 2222.3, 3333.3, 4444.3, 5555.3, 6666.3), "1111-11-11"
#: The attribute that gives the member, which is replaced likewise.
_MEMBER = "7777777"
_AXES = {"time": f"days since {_DATE}", "lat": "degrees_north", "lon": "degrees_east"}


def _template(path: Path, scalar: bool = False) -> bytes:
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        for (name, units), values in zip(_AXES.items(), zip(_MARKS[::2], _MARKS[1::2], strict=True), strict=True):
            is_scalar = scalar and name == "time"
            if not is_scalar:
                file.createDimension(name, 2)
            file.createVariable(name, "f8", () if is_scalar else (name,))[...] = values[0] if is_scalar else values
            file[name].units = units
        file.createVariable("tas", "f4", tuple(file.dimensions))[:] = 0.0
        file["tas"].coordinates = "time"
        file.member = _MEMBER
    data = path.read_bytes()
    path.unlink()
    return data


def _make(folder: Path, size: Size) -> None:
    data, side = _template(folder / "template.nc"), int(size["files"] ** 0.5)
    scalar = _template(folder / "template.nc", scalar=True)
    times, tiles = range(side * side), list(product(range(side), repeat=2))
    days = np.datetime64("2000-01-01") + 2 * np.arange(side * side)
    kinds: dict[str, list[tuple[float, float, float, Any]]] = {
        "series": [(2.0 * t, 0, 0, days[0]) for t in times],
        "scalars": [(2.0 * t, 0, 0, days[0]) for t in times],
        "members": [(0.0, 0, 0, days[0])] * len(times),
        "own_units": [(0.0, 0, 0, day) for day in days],
        "tiles": [(0.0, 2 * y, 2 * x, days[0]) for y, x in tiles],
        "overlaps": [(float(t), 0, 0, days[0]) for t in times],
    }
    for kind, files in kinds.items():
        (folder / kind).mkdir()
        for number, (t, y, x, day) in enumerate(files):
            values = (t, t + 1, y / 2 - 80, y / 2 - 79.5, x / 2, x / 2 + 0.5)
            own = (scalar if kind == "scalars" else data).replace(_DATE.encode(), str(day).encode())
            own = own.replace(_MEMBER.encode(), f"{number if kind == 'members' else 0:07}".encode())
            for mark, value in zip(_MARKS, values, strict=True):
                own = own.replace(struct.pack(">d", mark), struct.pack(">d", value))
            (folder / kind / f"{number:06}.nc").write_bytes(own)


def _prepare(kind: str, folder: Path, _size: Size) -> Any:
    import aggarray as aa

    rules = {"overlaps": aa.Rules(overlap="first"), "members": aa.Rules(new_dimension="member")}
    return aa, folder / kind, rules.get(kind, aa.Rules())


def _work(given: Any) -> Any:
    aa, folder, rules = given
    return aa.open(folder, rules=rules, processes=1)


def _values(_given: Any, agg: Any) -> dict[str, np.ndarray]:
    return {"arrays": np.array(len(agg)), "first": agg["tas"][:2, :2, :2].ravel()[:8]}


BENCHMARKS = (
    Benchmark(
        "scan_memory",
        "files opened, by how they differ",
        {"full": {"files": 10_000}, "tiny": {"files": 16}},
        _make,
        tuple(
            Contestant(f"aggarray, {kind.replace('_', ' ')}", partial(_prepare, kind), _work, _values)
            for kind in ("series", "scalars", "members", "own_units", "tiles", "overlaps")
        ),
        per="files",
    ),
)
