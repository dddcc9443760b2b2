"""Random tilings of random arrays, random keys, and NumPy's results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aggarray import MasterArray, SubArray

FILL = -999
#: Units of pieces: by what values in metres, all multiples of 1000, are multiplied; every product is exact.
FACTORS = {"m": 1, "km": 0.001, "cm": 100}
DTYPES = ("i2", "i4", "f4", "f8", ">i2", ">i4", ">f4", ">f8")


@dataclass(frozen=True)
class Tile:
    """One sub-array before it is written, and its location."""

    location: tuple[tuple[int, int], ...]
    values: np.ma.MaskedArray
    dimensions: tuple[str, ...]
    directions: tuple[bool, ...]
    units: str

    def in_memory(self) -> SubArray:
        """Return it as an array in memory that declares a fill value."""
        return SubArray.from_array(
            self.values.filled(FILL), dimensions=self.dimensions, directions=self.directions, units=self.units, fill_value=FILL
        )


@dataclass(frozen=True)
class Tiling:
    """Tiles and their array: float values, mask and common dtype."""

    dimensions: tuple[str, ...]
    directions: tuple[bool, ...]
    values: np.ndarray
    mask: np.ndarray
    dtype: np.dtype[Any]
    tiles: tuple[Tile, ...]

    def master(self, subarray: Callable[[Tile], SubArray] = Tile.in_memory) -> MasterArray:
        """Return the master array of the tiles."""
        return MasterArray.from_subarrays(
            [(t.location, subarray(t)) for t in self.tiles],
            dimensions=self.dimensions,
            shape=self.values.shape,
            directions=self.directions,
            units="m",
            fill_value=FILL,
        )


@st.composite
def boxes(draw: st.DrawFn, shape: Sequence[int]) -> list[tuple[tuple[int, int], ...]]:
    """Cut an array into boxes at random; their edges need not align."""
    result = [tuple((0, n) for n in shape)]
    for _ in range(draw(st.integers(0, 5)) if shape else 0):
        box = result.pop(draw(st.integers(0, len(result) - 1)))
        axis = draw(st.integers(0, len(shape) - 1))
        low, high = box[axis]
        cut = draw(st.integers(low, high))
        result += [(*box[:axis], part, *box[axis + 1 :]) for part in ((low, cut), (cut, high))]
    return result


@st.composite
def tilings(draw: st.DrawFn, min_size: int = 0, holes: bool = True, native: bool = False) -> Tiling:
    """Draw an array of up to four dimensions, cut into pieces of all kinds."""
    shape = tuple(draw(st.lists(st.integers(min_size, 5), max_size=4)))
    dimensions = tuple(f"d{i}" for i in range(len(shape)))
    directions = tuple(draw(st.booleans()) for _ in shape)
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = np.array(random.integers(-30, 31, shape) * 1000.0)
    mask = np.ones(shape, bool)
    tiles = []
    for box in draw(boxes(shape)):
        if holes and draw(st.integers(0, 5)) == 0:
            continue
        where = tuple(slice(*pair) for pair in box)
        dtype = np.dtype(draw(st.sampled_from(DTYPES)))
        dtype = dtype.newbyteorder("=") if native else dtype
        if dtype.kind == "f" and draw(st.booleans()):
            values[where] = np.where(random.random(values[where].shape) < 0.2, np.nan, values[where])
        mask[where] = random.random(values[where].shape) < draw(st.sampled_from([0, 0.3]))
        units = draw(st.sampled_from(["m", "km"] if dtype.itemsize == 2 else list(FACTORS)))
        block = np.ma.MaskedArray(np.asarray(values[where] * FACTORS[units]).round().astype(dtype), mask[where])
        tiles.append(_disguised(draw, Tile(box, block, dimensions, directions, units)))
    dtype = np.result_type(*(t.values.dtype.newbyteorder("=") for t in tiles)) if tiles else np.dtype("f8")
    if dtype.kind == "i" and any(t.units == "cm" for t in tiles):
        dtype = np.dtype("f8")
    return Tiling(dimensions, directions, values, mask, dtype, tuple(tiles))


def _disguised(draw: st.DrawFn, tile: Tile) -> Tile:
    """Reverse, drop (size 1), add and reorder dimensions of a tile."""
    values, names, directions = tile.values, list(tile.dimensions), list(tile.directions)
    for axis in range(values.ndim):
        if draw(st.booleans()):
            values, directions[axis] = np.flip(values, axis), not directions[axis]
    for axis in reversed(range(values.ndim)):
        if values.shape[axis] == 1 and draw(st.booleans()):
            values = values.reshape(values.shape[:axis] + values.shape[axis + 1 :])
            del names[axis], directions[axis]
    if draw(st.booleans()):
        values, names, directions = values[np.newaxis], ["extra", *names], [True, *directions]
    order = draw(st.permutations(range(len(names))))
    return Tile(
        tile.location, values.transpose(order), tuple(names[i] for i in order), tuple(directions[i] for i in order), tile.units
    )


@st.composite
def keys(draw: st.DrawFn, shape: Sequence[int]) -> tuple[Any, ...]:
    """Draw one key per dimension: integers, slices, index arrays, masks."""
    return tuple(draw(_parts(n)) for n in shape)


def _parts(n: int) -> st.SearchStrategy[Any]:
    positions = st.integers(-n, n - 1) if n else st.nothing()
    kinds: list[st.SearchStrategy[Any]] = [
        st.slices(n),
        st.slices(n),
        st.just(slice(None)),
        st.just(slice(None, None, -1)),
        st.lists(st.booleans(), min_size=n, max_size=n).map(lambda m: np.array(m, bool)),
    ]
    if n:
        kinds += [positions, st.lists(positions, max_size=2 * n).map(lambda p: np.array(p, np.int64))]
    return st.one_of(kinds)


def pick(array: np.ndarray, key: tuple[Any, ...]) -> np.ndarray:
    """Select as NumPy does, one dimension after the other, the last first."""
    for axis in reversed(range(len(key))):
        array = np.asarray(array[(slice(None),) * axis + (key[axis],)])
    return array


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    """Compare shape, dtype and values, NaN equal to itself."""
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(found, wanted)


def same_masked(found: np.ma.MaskedArray, values: np.ndarray, mask: np.ndarray) -> None:
    """Compare the mask exactly, and the values where nothing is missing."""
    assert found.shape == values.shape == mask.shape
    np.testing.assert_array_equal(np.ma.getmaskarray(found), mask)
    np.testing.assert_array_equal(np.asarray(found.data)[~mask], values[~mask])
