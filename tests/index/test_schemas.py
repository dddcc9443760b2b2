"""Indexes of every released schema stay readable."""

import h5py
import numpy as np
import pytest

import aggarray as aa
from aggarray.index.store import SCHEMA
from tests.support.paths import FIXTURES

pytestmark = pytest.mark.quick

FILES = sorted(path.name for path in FIXTURES.glob("schema_*.nca"))


def test_every_schema_has_a_fixture() -> None:
    assert {int(name[7]) for name in FILES} == set(range(1, SCHEMA + 1))


@pytest.mark.parametrize("name", FILES)
def test_an_index_of_each_schema_opens(name: str) -> None:
    path = FIXTURES / name
    with h5py.File(path) as file:
        assert int(file["aggarray"].attrs["schema"].item()) == int(name[7])
    value = aa.open(path)["value"]
    y, x = np.mgrid[0:8, 0:7]
    assert value.pmshape == (4, 6)
    np.testing.assert_array_equal(value[:], 10 * y + x)
    assert aa.open(path).append(path.parents[2] / "sample_data" / "tiles")["value"].pmshape == (4, 6)
