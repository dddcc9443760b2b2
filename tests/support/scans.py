"""Are two scans of a file equal in every field: dtypes, order and Python types included?

`direct` scans without a library and fails where that is refused; `by_netcdf4` is the oracle.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import h5py
import netCDF4
import numpy as np

from aggarray.formats.base import Structure
from aggarray.formats.hdf5.format import scan_by_library
from aggarray.formats.hdf5.metadata import partial_scan, scan
from aggarray.formats.hdf5.metadata.data import UNREADABLE
from aggarray.formats.partial_scan import PartialScan, PartialScanRequest
from aggarray.storage.byte_source import ByteSource
from tests.support import netcdf4_scan


def by_netcdf4(path: Any) -> Structure | str:
    """Scan with netCDF4: a structure, or the name of the format where it does not see all of the file."""
    return netcdf4_scan.scan(os.fspath(path))


def by_h5py(path: Any) -> Structure:
    """Scan with h5py, the oracle of files that are no netCDF-4."""
    return scan_by_library(os.fspath(path))


def without_library(path: Any) -> Structure | None:
    """Scan without a library, None where that is refused."""
    try:
        return scan.scan(os.fspath(path))
    except UNREADABLE:
        return None


def glimpse_without_library(path: Any, wanted: PartialScanRequest) -> PartialScan | None:
    """Glimpse without a library, None where that is refused."""
    try:
        return partial_scan.scan_partially(os.fspath(path), wanted)
    except UNREADABLE:
        return None


def direct(path: Any) -> Structure:
    """Scan without a library; the exception tells why not, where that is refused."""
    with ByteSource(os.fspath(path)) as file:
        return scan._structure(os.fspath(path), file)


def same(one: Any, other: Any) -> bool:
    """Tell whether two values of attributes or variables are the same, NaN being NaN."""
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
    """Yield in what two structures differ; ``ordered``: in the order of attributes too."""
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


def righted(path: Any, structure: Structure) -> Structure:
    """Return a scan by netCDF4 with what it misplaces as h5py has it.

    Where less is written along a dimension than it is long, the first one apart, netCDF-C puts what there is side by side.
    """
    variables = []
    with h5py.File(path) as file:
        for one in structure.variables:
            group, _, name = one.name.rpartition("/")
            found = file.get(f"{group}/_nc4_non_coord_{name}", file.get(one.name))
            if one.values is not None and found.dtype.kind in "iuf" and found.shape[1:] != one.shape[1:]:
                fill = one.attrs.get("_FillValue", netCDF4.default_fillvals[found.dtype.str[1:]])
                values = np.full(one.shape, fill, one.values.dtype)
                values[tuple(map(slice, found.shape))] = found[()]
                one = replace(one, values=values)
            variables.append(one)
    return replace(structure, variables=tuple(variables))


def check(path: Any) -> Structure:
    """Scan a file both ways, without and with netCDF4; both must manage and agree. Returns the structure."""
    found = direct(path)
    wanted = by_netcdf4(path)
    assert isinstance(wanted, Structure), f"netCDF4 leaves {path} to h5py ({wanted})"
    wanted = righted(path, wanted)
    assert not list(differences(found, wanted)), "\n".join(differences(found, wanted))
    assert not any(v.values is not None and v.values.flags.writeable for v in found.variables)
    return found


def differences_from_h5py(found: Structure, wanted: Structure) -> list[str]:
    """Return in what a scan differs from that of h5py, which has variables in any order, and knows of no format."""
    alike = [
        replace(
            s,
            format="",
            sizes=None,
            groups=dict(sorted(s.groups.items())),
            variables=tuple(sorted(s.variables, key=lambda v: v.name)),
            skipped=tuple(sorted(s.skipped)),
        )
        for s in (found, wanted)
    ]
    scopes = [[v.scopes for v in s.variables] for s in alike]
    others = [scopes, [sorted(found.elsewhere), sorted(wanted.elsewhere)]]
    return [*differences(*alike, ordered=False), *(f"{one} and {other}" for one, other in others if one != other)]


def check_against_h5py(path: Any) -> Structure:
    """Scan a file without a library, and hold the result against that of h5py. Returns the structure."""
    found = direct(path)
    assert not (told := differences_from_h5py(found, by_h5py(path))), "\n".join(told)
    return found


def agrees(path: Any, ordered: bool = True) -> bool:
    """Scan a file without a library if that is allowed, and hold the result against netCDF4's; tell whether it was."""
    found = without_library(path)
    if found is None:
        return False
    wanted = by_netcdf4(path)
    assert isinstance(wanted, Structure), f"netCDF4 leaves {path} to h5py ({wanted})"
    wanted = righted(path, wanted)
    assert not list(differences(found, wanted, ordered)), "\n".join(differences(found, wanted, ordered))
    return True
