"""Comparison of scans of a file in every field, including dtypes, order and Python types.

`direct` scans without the library and raises an error if the file is unsupported; `by_netcdf4` is the oracle.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import h5py
import netCDF4
import numpy as np

from aggarray.formats.base import Structure
from aggarray.formats.hdf5.library import scan_by_library
from aggarray.formats.hdf5.metadata import partial, scan
from aggarray.formats.hdf5.metadata.data import UNREADABLE
from aggarray.formats.partial_scan import PartialScan, PartialScanRequest
from tests.support import netcdf4_scan


def by_netcdf4(path: Any) -> Structure | str:
    """Return the scan by netCDF4, or the name of the format if netCDF4 does not read all of the file."""
    return netcdf4_scan.scan(os.fspath(path))


def by_h5py(path: Any) -> Structure:
    """Return the scan by h5py, the oracle for files that are not netCDF-4."""
    return scan_by_library(os.fspath(path))


def without_library(path: Any) -> Structure | None:
    """Return the scan without the library, None for an unsupported file."""
    try:
        return scan.scan(os.fspath(path))
    except UNREADABLE:
        return None


def partial_scan_without_library(path: Any, request: PartialScanRequest) -> PartialScan | None:
    """Return the partial scan without the library, None for an unsupported file."""
    try:
        return partial.scan_partially(os.fspath(path), request)
    except UNREADABLE:
        return None


def direct(path: Any) -> Structure:
    """Return the scan without the library; raises the error of an unsupported file."""
    return scan.scan(os.fspath(path))


def same(one: Any, other: Any) -> bool:
    """Return whether two values of attributes or variables are equal, including their types; NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        nan = one.dtype.kind in "fc"
        return one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other, equal_nan=nan)
    return bool(one == other or (one != one and other != other))


def _attributes(where: str, one: Mapping[str, Any], other: Mapping[str, Any], ordered: bool = True) -> Iterator[str]:
    if (list(one) if ordered else sorted(one)) != (list(other) if ordered else sorted(other)):
        yield f"{where}: attributes {list(one)} and {list(other)}"
        return
    for name in one:
        if not same(one[name], other[name]):
            yield f"{where}: attribute {name!r} {one[name]!r} and {other[name]!r}"


def differences(one: Structure, other: Structure, ordered: bool = True) -> Iterator[str]:
    """Yield the differences of two structures; ``ordered``: including the order of attributes."""
    for name in ("uri", "format", "skipped"):
        if getattr(one, name) != getattr(other, name):
            yield f"{name}: {getattr(one, name)!r} and {getattr(other, name)!r}"
    if list((one.sizes or {}).items()) != list((other.sizes or {}).items()):
        yield f"sizes: {one.sizes} and {other.sizes}"
    yield from _attributes("file", one.attrs, other.attrs, ordered)
    if list(one.groups) != list(other.groups):
        yield f"groups {list(one.groups)} and {list(other.groups)}"
        return
    for name in one.groups:
        yield from _attributes(f"group {name!r}", one.groups[name], other.groups[name], ordered)
    names = [[v.name for v in structure.variables] for structure in (one, other)]
    if names[0] != names[1]:
        yield f"variables {names[0]} and {names[1]}"
        return
    for v, w in zip(one.variables, other.variables, strict=True):
        if (v.dtype, v.shape, v.dimensions) != (w.dtype, w.shape, w.dimensions):
            yield f"{v.name}: {(v.dtype, v.shape, v.dimensions)} and {(w.dtype, w.shape, w.dimensions)}"
        yield from _attributes(v.name, v.attrs, w.attrs, ordered)
        if not same(v.values, w.values):
            yield f"{v.name}: values {v.values!r} and {w.values!r}"


def correct_values(path: Any, structure: Structure) -> Structure:
    """Return a scan by netCDF4 with values that it misplaces taken from h5py.

    If fewer elements are written along a dimension than it is long, except the first dimension, netCDF-C packs them.
    """
    variables = []
    with h5py.File(path) as file:
        for one in structure.variables:
            group, _, name = one.name.rpartition("/")
            dataset = file.get(f"{group}/_nc4_non_coord_{name}", file.get(one.name))
            if one.values is not None and dataset.dtype.kind in "iuf" and dataset.shape[1:] != one.shape[1:]:
                fill = one.attrs.get("_FillValue", netCDF4.default_fillvals[dataset.dtype.str[1:]])
                values = np.full(one.shape, fill, one.values.dtype)
                values[tuple(map(slice, dataset.shape))] = dataset[()]
                one = replace(one, values=values)
            variables.append(one)
    return replace(structure, variables=tuple(variables))


def check(path: Any) -> Structure:
    """Scan a file without the library and with netCDF4; both must succeed and agree. Return the structure."""
    actual = direct(path)
    expected = by_netcdf4(path)
    assert isinstance(expected, Structure), f"netCDF4 leaves {path} to h5py ({expected})"
    expected = correct_values(path, expected)
    assert not list(differences(actual, expected)), "\n".join(differences(actual, expected))
    assert not any(v.values is not None and v.values.flags.writeable for v in actual.variables)
    return actual


def differences_from_h5py(actual: Structure, expected: Structure) -> list[str]:
    """Return the differences from the scan by h5py, which has variables in any order and no format."""
    normalised = [
        replace(
            s,
            format="",
            sizes=None,
            groups=dict(sorted(s.groups.items())),
            variables=tuple(sorted(s.variables, key=lambda v: v.name)),
            skipped=tuple(sorted(s.skipped)),
        )
        for s in (actual, expected)
    ]
    scopes = [[v.scopes for v in s.variables] for s in normalised]
    others = [scopes, [sorted(actual.external_files), sorted(expected.external_files)]]
    return [*differences(*normalised, ordered=False), *(f"{one} and {other}" for one, other in others if one != other)]


def check_against_h5py(path: Any) -> Structure:
    """Scan a file without the library and compare the result with that of h5py. Return the structure."""
    actual = direct(path)
    assert not (different := differences_from_h5py(actual, by_h5py(path))), "\n".join(different)
    return actual


def agrees(path: Any, ordered: bool = True) -> bool:
    """Compare a scan without the library with that of netCDF4; return False for an unsupported file."""
    actual = without_library(path)
    if actual is None:
        return False
    expected = by_netcdf4(path)
    assert isinstance(expected, Structure), f"netCDF4 leaves {path} to h5py ({expected})"
    expected = correct_values(path, expected)
    assert not list(differences(actual, expected, ordered)), "\n".join(differences(actual, expected, ordered))
    return True
