"""xarray's own tests of backends, for files that xarray writes and the engine reads.

`test_xarray_suite.py` runs them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from xarray.tests.test_backends import DatasetIOBase

from aggarray.xarray_engine import AggarrayBackendEntrypoint

#: Tests of intended differences, and of writing.
ELSE = {
    "test_zero_dimensional_variable": "characters without an encoding are text",
    "test_roundtrip_object_dtype": "characters without an encoding are text",
    "test_roundtrip_string_encoded_characters": "text is text, however it was stored",
    "test_load_async": "needs a plug-in of pytest",
    "test_vectorized_indexing_negative_step": "needs a fixture of xarray's",
    "test_roundtrip_timedelta_data_via_dtype": "needs a fixture of xarray's",
}


class TestEngine(DatasetIOBase):  # type: ignore[misc]
    """All tests that xarray has for a backend."""

    engine: Any = AggarrayBackendEntrypoint
    file_format = "NETCDF4"

    def save(self, dataset: Any, path: Any, **kwargs: Any) -> Any:
        """Write with xarray's netCDF engine."""
        return dataset.to_netcdf(path, engine="netcdf4", format=self.file_format, **kwargs)

    @contextmanager
    def create_store(self) -> Iterator[None]:
        """Skip: the engine has no store to write to."""
        pytest.skip("no store to write to")
        yield


for _name, _reason in ELSE.items():
    setattr(TestEngine, _name, pytest.mark.skip(reason=_reason)(lambda self: None))
del DatasetIOBase
