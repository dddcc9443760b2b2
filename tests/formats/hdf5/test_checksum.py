"""Checksum of HDF5's metadata, by numcodecs."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs.jenkins import jenkins_lookup3

from aggarray.formats.hdf5.metadata import checksum
from tests.support.paths import ROOT

pytestmark = pytest.mark.quick

FRESH = """
import sys
from aggarray.formats.hdf5.metadata.checksum import lookup3
few, many = lookup3(bytes(range(100))), None
assert "numcodecs" not in sys.modules, "numcodecs is imported for few bytes"
for _ in range(1000):
    many = lookup3(bytes(range(100)))
assert "numcodecs" in sys.modules and few == many
"""


@given(st.binary(max_size=300))
def test_the_same_as_numcodecs(data: bytes) -> None:
    assert checksum._in_python(data) == jenkins_lookup3(data) == checksum.lookup3(data)


def test_numcodecs_is_imported_for_many_bytes() -> None:
    subprocess.run([sys.executable, "-c", FRESH], cwd=ROOT, check=True, timeout=60)
