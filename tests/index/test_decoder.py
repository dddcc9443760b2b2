"""Decoding of an index: renumbered rows, by NumPy's unique."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.index import decoder

pytestmark = pytest.mark.quick


@given(st.lists(st.integers(-2, 7), max_size=9), st.integers(0, 8), st.sampled_from([0, 100]))
def test_renumbered_rows(rows: list[int], count: int, short: int) -> None:
    """``short``: 100 for the way of short columns, 0 for that of long ones."""
    column = np.array(rows, np.int32)
    with mock.patch.object(decoder, "_SHORT", short if rows else 1):
        if rows and not -1 <= min(rows) <= max(rows) < count:
            with pytest.raises(ValueError, match="row number out of range"):
                decoder._renumber(column, count)
            return
        used, renumbered = decoder._renumber(column, count)
    expected, inverse = np.unique(column[column >= 0], return_inverse=True)
    assert list(used) == expected.tolist()
    assert renumbered.dtype == np.int32
    assert renumbered[column >= 0].tolist() == inverse.tolist() and (renumbered[column < 0] == -1).all()
