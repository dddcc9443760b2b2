"""Aggregation files of other programs: opening and writing them."""

import os
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from aggarray.aggregate.variables import arrays_of
from aggarray.formats import scan
from aggarray.index import Opening
from aggarray.index.conventions.foreign import ForeignArrays, array_of_matrix, convention_of
from aggarray.index.foreign import read_foreign
from aggarray.index.uris import NOWHERE, PathMap
from tests.support.netcdf import write


def foreign(path: str | os.PathLike[str], path_map: PathMap = NOWHERE) -> ForeignArrays:
    """Read an aggregation file of any convention."""
    structure = scan(path)
    convention = convention_of(structure)
    assert convention is not None, f"{path} is of no convention"
    return read_foreign(structure, convention, Opening(path_map=path_map))


def opened(path: str | os.PathLike[str]) -> dict[str, aa.MasterArray]:
    """Return the arrays of an aggregation file by name, with their coordinates."""
    result = foreign(path)
    arrays, skipped = arrays_of(result.structure)
    assert skipped == []

    def put(array: aa.MasterArray) -> aa.MasterArray:
        matrix = result.matrices.get(str(array.name))
        return array if matrix is None else array_of_matrix(array, matrix)

    return {str(a.name): replace(put(a), coords={k: put(c) for k, c in a.coords.items()}) for a in arrays}


def fragment(path: str | os.PathLike[str], values: Any, dimensions: tuple[str, ...] = ("time", "x"), **attrs: Any) -> str:
    """Write a fragment: variable ``tas`` in K; ``units=None``: without units."""
    attrs = {"units": "K", **attrs}
    return write(path, {"tas": (dimensions, np.asarray(values), {k: v for k, v in attrs.items() if v is not None})})


def cfdm_library() -> ModuleType:
    """Return cfdm, the reference implementation; skip the test if it cannot be imported."""
    try:
        import cfdm
    except (ImportError, OSError) as error:  # FileNotFoundError where udunits2 is not installed
        pytest.skip(f"cfdm does not load: {error}")
    return cfdm


def cfdm_values(path: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> np.ma.MaskedArray:
    """Return the values that cfdm reads.

    cfdm resolves relative names against the working directory, which is set to the folder of the index.
    """
    cfdm = cfdm_library()
    monkeypatch.chdir(folder)
    fields = [f for f in cfdm.read(path) if f.nc_get_variable() == name]
    assert len(fields) == 1
    return np.ma.asarray(fields[0].data.array)
