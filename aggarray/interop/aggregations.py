"""Conversion of an aggregation to xarray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aggarray.arrays.master import MasterArray
from aggarray.interop.xarray_store import to_datasets
from aggarray.output.datasets import datasets


def to_xarray(arrays: Sequence[MasterArray], chunks: Any = None) -> Any:
    """Return the dataset of arrays, or a tree of several datasets.

    ``chunks``: as in `Aggregation.to_xarray`.
    """
    return to_datasets(datasets(arrays), chunks)
