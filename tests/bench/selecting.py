"""Time to open an archive of many small files and read the time series of a point, a box or a latitude.

A small part of every file is read. Every contestant ends with one array in memory; `peers` describes what is included.
"""

from functools import partial

from tests.bench.harness import Benchmark
from tests.bench.layouts import Layout
from tests.bench.peers import H5PY, HIDEFIX, NETCDF4, XARRAY, box, point, readers, transect, write_with_index

_TINY = {"files": 3, "steps": 5, "lat": 12, "lon": 16}
_MANY = {"full": {"files": 1000, "steps": 10, "lat": 36, "lon": 72}, "tiny": _TINY}
_FEWER = {"full": {"files": 200, "steps": 10, "lat": 36, "lon": 72}, "tiny": _TINY}
_DEFLATED = {"zlib": True, "shuffle": True}
_LAYOUTS = {
    "steps": ("chunks of one step", Layout((1, 36, 72), options=_DEFLATED)),
    "blocks": ("chunks of all steps of 9 by 9 points", Layout((10, 9, 9), options=_DEFLATED)),
    "plain": ("no chunks", Layout()),
}
_PEERS = (XARRAY, NETCDF4, H5PY)
_READ = {
    "point": ("a point's series", _MANY, readers(point, *_PEERS, HIDEFIX)),
    "series": ("a point's series", _FEWER, readers(point, *_PEERS, HIDEFIX)),
    "box": ("a box's series", _FEWER, readers(box, *_PEERS, HIDEFIX)),
    # hidefix 0.12 returns wrong values for a complete row: the next latitude instead of the next step.
    "transect": ("a latitude's series", _FEWER, readers(transect, *_PEERS)),
}


def _benchmark(read: str, layout: str) -> Benchmark:
    title, sizes, contestants = _READ[read]
    about, stored = _LAYOUTS[layout]
    make = partial(write_with_index, layout=stored)
    return Benchmark(f"{read}-{layout}", f"{title}, {about}", sizes, make, contestants)


BENCHMARKS = tuple(
    _benchmark(*names)
    for names in (
        ("point", "steps"),
        ("point", "blocks"),
        ("series", "plain"),
        ("box", "steps"),
        ("transect", "blocks"),
    )
)
