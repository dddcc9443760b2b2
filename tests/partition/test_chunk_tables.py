"""Chunk tables as columns return what was put in, also after pickling."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.codecs.base import Filter
from aggarray.index.chunk_tables import _narrow
from aggarray.partition.chunk_tables import NO_TABLES, ChunkTables, Layout
from aggarray.partition.matrix import References

pytestmark = pytest.mark.quick

FILES, NAMES = ["/a.nc", "/b.nc", "/c.nc"], ["tas", "pr"]
LAYOUTS: list[Layout] = [((n,), (1,), np.dtype("f4"), (Filter("deflate"),), 0.0) for n in range(4)]

chunks = st.lists(st.tuples(st.integers(-1, 1 << 62), st.integers(0, 1 << 32), st.sampled_from([0, 0, 1])), max_size=3)
rows = st.dictionaries(st.tuples(st.integers(0, 2), st.integers(0, 1)), chunks)


def tables_of(rows: dict[tuple[int, int], list[tuple[int, int, int]]]) -> ChunkTables:
    stamps = np.array([[100 + code, 10**18 + code, 7] for code in range(3)])
    numbers = np.array([*rows], np.int64).reshape(-1, 2).T
    counts = np.array([len(part) for part in rows.values()], np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    columns = np.array([chunk for part in rows.values() for chunk in part], np.int64).reshape(-1, 3).T
    narrow = [_narrow(column) for column in (*numbers, counts, starts, *columns)]
    return ChunkTables(FILES, stamps, NAMES, LAYOUTS, *narrow[:-1], narrow[-1] if narrow[-1].any() else None)


def references_of(uri: str, name: str, stamp: tuple[int, int]) -> References:
    """Return a table of one sub-array; ``stamp``: size and modification time of its file."""
    zero = np.zeros(1, np.int32)
    return References((uri,), (name,), (), (), zero, zero, zero, np.array([[*stamp, 7]]))


@given(rows)
def test_tables_return_what_was_put_in(rows: dict[tuple[int, int], list[tuple[int, int, int]]]) -> None:
    tables = tables_of(rows)
    for held in (tables, pickle.loads(pickle.dumps(tables))):
        for code, uri in enumerate(FILES):
            for number, name in enumerate(NAMES):
                part = rows.get((code, number))
                references = references_of(uri, name, (100 + code, 10**18 + code))
                found = held.find(references, 0)
                assert (found is None) == (part is None)
                assert held.find(references_of(uri, name, (99, 10**18)), 0) is None
                stored = sum(size for offset, size, _ in part if offset >= 0) if part is not None else -1
                assert held.stored(references).tolist() == [stored]
                if found is not None and part is not None:
                    assert found.shape == (len(part),)
                    masks = [0] * len(part) if found.masks is None else found.masks.tolist()
                    assert list(zip(found.offsets.tolist(), found.sizes.tolist(), masks, strict=True)) == part
        unknown = references_of("/d.nc", "tas", (0, 0)), references_of("/a.nc", "ua", (100, 10**18))
        assert all(held.find(references, 0) is None for references in unknown)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_narrow_columns_hold_their_values(values: list[int]) -> None:
    column = np.array(values, np.int64)
    narrow = _narrow(column)
    assert narrow.tolist() == values and narrow.dtype.kind == "i"
    assert narrow.dtype.itemsize == 1 or not all(-128 <= value <= 127 for value in values)


def test_an_empty_table_has_no_rows() -> None:
    references = references_of("/a.nc", "tas", (0, 0))
    assert NO_TABLES.find(references, 0) is None and NO_TABLES.stored(references).tolist() == [-1]
    assert pickle.loads(pickle.dumps(NO_TABLES)).nbytes == NO_TABLES.nbytes
