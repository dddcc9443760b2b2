"""Time to open an archive and read a complete variable, in the common storage layouts.

Every contestant ends with one array in memory; `peers` describes what is included.
"""

from functools import partial

from tests.bench.harness import Benchmark
from tests.bench.layouts import Layout
from tests.bench.peers import H5PY, HIDEFIX, NETCDF4, XARRAY, readers, whole, write_with_index

_TINY = {"files": 2, "steps": 5, "lat": 8, "lon": 10}
_MANY = {"full": {"files": 300, "steps": 10, "lat": 18, "lon": 36}, "tiny": _TINY}
_LARGE = {"full": {"files": 24, "steps": 120, "lat": 180, "lon": 360}, "tiny": _TINY}
_MEDIUM = {"full": {"files": 6, "steps": 120, "lat": 180, "lon": 360}, "tiny": _TINY}
_STEP, _SMALL, _BLOCK = (1, 180, 360), (1, 60, 90), (73, 30, 60)

_ALL = readers(whole, XARRAY, NETCDF4, H5PY, HIDEFIX)
# hidefix does not support big-endian values.
_ENDIAN = readers(whole, XARRAY, NETCDF4, H5PY)


def _deflated(chunks: tuple[int, int, int], dtype: str = "f4") -> Layout:
    return Layout(chunks, dtype, {"zlib": True, "shuffle": True})


_LAYOUTS = (
    ("read-small", "many small files, stored plainly", _MANY, Layout(), _ALL),
    ("read-deflated", "shuffled and deflated, a chunk is a step", _LARGE, _deflated(_STEP), _ALL),
    ("read-small-chunks", "shuffled and deflated, chunks of 22 KB", _MEDIUM, _deflated(_SMALL), _ALL),
    ("read-blocks", "shuffled and deflated, chunks of 73 steps", _MEDIUM, _deflated(_BLOCK), _ALL),
    ("read-packed", "shuffled and deflated, 16-bit integers packed", _MEDIUM, _deflated(_STEP, "i2"), _ALL),
    ("read-double", "shuffled and deflated, float64", _MEDIUM, _deflated(_STEP, "f8"), _ALL),
    ("read-big-endian", "shuffled and deflated, big-endian", _MEDIUM, _deflated(_STEP, ">f4"), _ENDIAN),
)

BENCHMARKS = tuple(
    Benchmark(name, title, sizes, partial(write_with_index, layout=layout), contestants)
    for name, title, sizes, layout, contestants in _LAYOUTS
)
