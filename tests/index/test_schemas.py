"""Indexes of every released schema stay readable."""

import h5py
import numpy as np
import pytest

import aggarray as aa
from aggarray.index.store import SCHEMA
from tests.support.paths import FIXTURES


@pytest.mark.parametrize("schema", range(1, SCHEMA + 1))
def test_an_index_of_each_schema_opens(schema: int) -> None:
    path = FIXTURES / f"schema_{schema}.nca"
    with h5py.File(path) as file:
        assert int(file["aggarray"].attrs["schema"].item()) == schema
    value = aa.open(path)["value"]
    y, x = np.mgrid[0:8, 0:7]
    assert value.pmshape == (4, 6)
    np.testing.assert_array_equal(value[:], 10 * y + x)
    assert aa.open(path).append(path.parents[2] / "sample_data" / "tiles")["value"].pmshape == (4, 6)
