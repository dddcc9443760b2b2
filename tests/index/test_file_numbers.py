"""Numbers of the files of an index: as a dict of their paths gives them, for columns and for texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.index.file_numbers import FileNumbers
from aggarray.index.indexed_files import Files
from aggarray.index.uris import NOWHERE
from aggarray.memory.texts import Texts
from aggarray.partition.file_names import count_files, paths_among
from aggarray.partition.matrix import References

pytestmark = pytest.mark.quick

NAMES = [f"run/temperature_{n:04}.nc" for n in range(9)] + ["a.nc", "b%20c.nc", "../x/y.nc", "temperature_0001.nc"]
rows = st.lists(st.integers(0, len(NAMES) - 1), unique=True)
part = st.tuples(rows, st.booleans())


def columns(plain: bool) -> Files:
    """Return files of an index, all of whose names are plain, or not."""
    return Files(Texts.of([n for n in NAMES if "%" not in n] if plain else NAMES), "/data/index", NOWHERE)


@given(st.booleans(), st.lists(part, max_size=5))
def test_numbers_are_those_of_a_dict(plain: bool, parts: list[tuple[list[int], bool]]) -> None:
    files, numbers, expected = columns(plain), FileNumbers(), dict[str, int]()
    paths = list(files)
    for chosen, as_texts in parts:
        chosen = [row for row in chosen if row < len(files)]
        uris = tuple(paths[row] for row in chosen) if as_texts else files.take(chosen)
        own = [expected.setdefault(uri, len(expected)) for uri in uris]
        assert list(uris) == [paths[row] for row in chosen]
        assert np.bincount(numbers.of(uris), minlength=1).max() <= 1
        assert len(numbers) == len(expected) and numbers.of(uris) is numbers.of(uris)
        assert len(own) == len(numbers.of(uris))
    # The same file has the same number however it was given.
    for uri in expected:
        (row,) = [row for row, path in enumerate(paths) if path == uri]
        assert numbers.of((uri,)).tolist() == numbers.of(files.take([row])).tolist()
    assert len(numbers) == len(expected)
    listed = numbers.some(np.arange(len(numbers)))
    assert sorted(listed) == sorted(expected) and [int(numbers.of((uri,))[0]) for uri in listed] == list(range(len(listed)))
    assert len(set(numbers.references("/data", True))) == len(expected)


def references(uris: Files | tuple[str, ...]) -> References:
    zeros = np.zeros(len(uris), np.int32)
    return References(uris, ("v",), (), (), np.arange(len(uris), dtype=np.int32), zeros, zeros)


@given(st.booleans(), st.lists(part, min_size=1, max_size=3), rows)
def test_files_of_several_tables(plain: bool, parts: list[tuple[list[int], bool]], wanted: list[int]) -> None:
    files = columns(plain)
    paths = list(files)
    tables = []
    for chosen, as_texts in parts:
        kept = [row for row in chosen if row < len(files)]
        tables.append(references(tuple(paths[row] for row in kept) if as_texts else files.take(kept)))
    expected = {uri for table in tables for uri in table.uris}
    assert count_files((table, np.ones(len(table.uris), bool)) for table in tables) == len(expected)
    asked = {*(paths[row] for row in wanted if row < len(files)), "/elsewhere/temperature_0001.nc"}
    assert paths_among(tables, asked) == asked & expected


def test_a_part_of_a_part_of_the_files() -> None:
    files = columns(plain=True)
    for first, second in ((range(2, 9), [4, 1]), ([8, 3, 5], range(1, 3)), (range(1, 7), range(2, 4))):
        some = files.take(first).take(second)
        numbers = [list(first)[row] for row in second]
        assert some.base is files and some.numbers_of(np.arange(len(some))).tolist() == numbers
        assert list(some) == [list(files)[row] for row in numbers]
