"""Time and memory to build large partition matrices from arrays in memory.

The arrays exist before the clock starts. The plain Python and NumPy contestants are lower bounds: they only create the objects
or the bytes.
"""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.bench.harness import Benchmark, Contestant, Size


def _nothing(_folder: Path, _size: Size) -> None:
    """Make no files."""


def _boxes(size: Size) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return boxes that tile a square like bricks: every other row is shifted by half a brick."""
    rows, columns, width = size["rows"], size["columns"], size["width"]
    end = columns * width
    result = []
    for row in range(rows):
        shift = width // 2 if size["shifted"] and row % 2 else 0
        cuts = [0, *range(width - shift, end, width), end] if shift else range(0, end + 1, width)
        result += [((row, row + 1), (a, b)) for a, b in pairwise(cuts)]
    return result


def _given(_folder: Path, size: Size) -> SimpleNamespace:
    import aggarray

    boxes = _boxes(size)
    whole = np.arange(size["rows"] * size["columns"] * size["width"], dtype="f8").reshape(size["rows"], -1)
    arrays = [whole[a:b, c:d] for (a, b), (c, d) in boxes]
    some = np.random.default_rng(1).integers(0, whole.shape, (50, 2))
    return SimpleNamespace(library=aggarray, boxes=boxes, arrays=arrays, shape=whole.shape, some=some)


def _aggarray(given: SimpleNamespace) -> Any:
    made = given.library.SubArray.from_array
    pieces = [(box, made(array, dimensions=("y", "x"))) for box, array in zip(given.boxes, given.arrays, strict=True)]
    return given.library.MasterArray.from_subarrays(pieces, dimensions=("y", "x"))


def _values_of_aggarray(given: SimpleNamespace, a: Any) -> dict[str, np.ndarray]:
    some = np.array([a[int(y), int(x)] for y, x in given.some])
    return {"shape": np.array(a.shape), "some": some, "rows": a[:2]}


def _dict(given: SimpleNamespace) -> Any:
    pairs = zip(given.boxes, given.arrays, strict=True)
    return {box: {"data": array, "shape": array.shape, "dtype": array.dtype} for box, array in pairs}


def _values_of_dict(_given: Any, found: Any) -> dict[str, np.ndarray]:
    return {"shape": np.array([box for box in found][-1])[:, 1]}


def _numpy(given: SimpleNamespace) -> Any:
    result = np.empty(given.shape)
    for ((a, b), (c, d)), array in zip(given.boxes, given.arrays, strict=True):
        result[a:b, c:d] = array
    return result


def _values_of_numpy(given: SimpleNamespace, result: np.ndarray) -> dict[str, np.ndarray]:
    return {"shape": np.array(result.shape), "some": result[tuple(given.some.T)], "rows": result[:2]}


CONTESTANTS = (
    Contestant("aggarray", _given, _aggarray, _values_of_aggarray),
    Contestant("a Python dict of dicts", _given, _dict, _values_of_dict),
    Contestant("NumPy, copying into one array", _given, _numpy, _values_of_numpy),
)


def _joined_by_aggarray(_folder: Path, size: Size) -> SimpleNamespace:
    import aggarray as aa

    def single(values: np.ndarray) -> Any:
        piece = aa.SubArray.from_array(values, dimensions=("x",))
        return aa.MasterArray.from_subarrays([([(0, len(values))], piece)], dimensions=("x",))

    return SimpleNamespace(library=aa, arrays=[single(values) for values in _lines(size)])


def _joined_by_xarray(_folder: Path, size: Size) -> SimpleNamespace:
    import xarray

    return SimpleNamespace(library=xarray, arrays=[xarray.DataArray(values, dims=("x",)) for values in _lines(size)])


def _joined_by_dask(_folder: Path, size: Size) -> SimpleNamespace:
    import dask.array

    return SimpleNamespace(library=dask.array, arrays=[dask.array.from_array(values) for values in _lines(size)])


def _lines(size: Size) -> list[np.ndarray]:
    return list(np.arange(size["arrays"] * size["length"], dtype="f8").reshape(size["arrays"], -1))


def _joined(_given: Any, result: Any) -> dict[str, np.ndarray]:
    return {"values": np.asarray(result)}


JOINERS = (
    Contestant("aggarray.concat", _joined_by_aggarray, lambda given: given.library.concat(given.arrays, "x"), _joined),
    Contestant("xarray.concat", _joined_by_xarray, lambda given: given.library.concat(given.arrays, "x"), _joined),
    Contestant("dask.array.concatenate", _joined_by_dask, lambda given: given.library.concatenate(given.arrays), _joined),
)

_MILLION = {
    "full": {"rows": 1000, "columns": 1000, "width": 1, "shifted": 0},
    "tiny": {"rows": 3, "columns": 4, "width": 1, "shifted": 0},
}
_BRICKS = {
    "full": {"rows": 1000, "columns": 100, "width": 4, "shifted": 1},
    "tiny": {"rows": 3, "columns": 4, "width": 4, "shifted": 1},
}
_LINES = {"full": {"arrays": 10_000, "length": 10}, "tiny": {"arrays": 5, "length": 3}}

BENCHMARKS = (
    Benchmark("million", "a matrix of partitions from as many arrays", _MILLION, _nothing, CONTESTANTS),
    Benchmark("tiles", "sub-arrays laid like bricks, cut into virtual partitions", _BRICKS, _nothing, CONTESTANTS),
    Benchmark("join", "arrays in memory, one after the other", _LINES, _nothing, JOINERS),
)
