"""Versions of the same data: final and preliminary (ERA5's ``expver``).

Arrays are cut into runs of one version each, ranked by version. Where runs overlap, the lowest version serves. The version
remains as a coordinate along time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.subarray import SubArray
from aggarray.cf.units import is_reference_time
from aggarray.dataclass import replace
from aggarray.memory.selection import Range

#: The version of arrays without one, where others have one: final.
FINAL = 1


def by_version(arrays: Sequence[MasterArray], name: str) -> list[tuple[MasterArray, int]]:
    """Return arrays, cut to one version each, with its rank (0: no version)."""
    stated = [a.coords[name] for a in arrays if name in a.coords]
    if not stated:
        return [(array, 0) for array in arrays]
    text = any(c.dtype.kind == "T" for c in stated)
    attrs = stated[0].attrs
    ranked = []
    for part, rank in chain.from_iterable(_ranked(array, name, text) for array in arrays):
        if name in part.coords:
            part = replace(part, coords={**part.coords, name: replace(part.coords[name], attrs=attrs)})
        ranked.append((part, rank))
    return ranked


def _ranked(array: MasterArray, name: str, text: bool) -> Iterator[tuple[MasterArray, int]]:
    coordinate = array.coords.get(name)
    default = f"{FINAL:04}" if text else FINAL
    values = np.array([default]) if coordinate is None else np.atleast_1d(coordinate[...])
    along = coordinate.dimensions[0] if coordinate is not None and coordinate.dimensions not in ((), (name,)) else None
    time = next((d for d in array.dimensions if d in array.coords and is_reference_time(array.coords[d].units)), along)
    if coordinate is None or coordinate.ndim == 0:
        yield _with_version(array, name, time, values[0])
    elif name in array.dimensions:
        for chosen, start, stop in _version_runs(array, name, time, values):
            part = array._chosen({name: chosen, time or "": Range(start, stop - start)})
            yield _with_version(part, name, time, values[chosen])
    elif time is not None and coordinate.dimensions == (time,):
        cuts = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)]
        for start, stop in pairwise(cuts):
            part = array._chosen({time: Range(start, stop - start)})
            yield _with_version(part, name, time, values[start])
    else:
        yield array, 0


def _with_version(array: MasterArray, name: str, time: str | None, value: Any) -> tuple[MasterArray, int]:
    """Return an array with its rank; the version becomes a coordinate."""
    coords = {k: c for k, c in array.coords.items() if k != name}
    rank = int(value) if str(value).strip().isdigit() else 0
    if time is None:
        return replace(array, coords=coords), rank
    size = array.shape[array.dimensions.index(time)]
    values = np.full(size, value, np.dtypes.StringDType() if isinstance(value, str) else np.asarray(value).dtype)
    piece = SubArray.from_array(values, dimensions=(time,), directions=(array.directions[array.dimensions.index(time)],))
    version = MasterArray(
        name, values.dtype, None, None, piece.fill_value, piece.matrix(), {}, array.file_attrs, {}, (values, None)
    )
    return replace(array, coords={**coords, name: version}), rank


def _version_runs(array: MasterArray, name: str, time: str | None, versions: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Yield (version index, start, stop) of runs of the lowest valid version."""
    order = sorted(range(len(versions)), key=lambda i: (len(str(versions[i])), str(versions[i])))
    if time is None:
        yield order[0], 0, 1
        return
    size = array.shape[array.dimensions.index(time)]
    chosen = np.full(size, order[-1])
    for index in reversed(order[:-1]):
        chosen[_has_valid_values(array, name, index, time)] = index
    cuts = [0, *(np.flatnonzero(np.diff(chosen)) + 1).tolist(), size]
    for start, stop in pairwise(cuts):
        if stop > start:
            yield int(chosen[start]), start, stop


def _has_valid_values(array: MasterArray, name: str, index: int, time: str) -> np.ndarray:
    """Return whether a version has valid values, per step, by samples first."""
    single = array._selected({name: index})
    axis = single.dimensions.index(time)
    sizes = zip(single.dimensions, single.shape, strict=True)
    sparse: Any = tuple(slice(None) if d == time else slice(None, None, max(1, n // 8)) for d, n in sizes)
    valid = _any_valid(single.read(sparse, masked=True), axis)
    for step in np.flatnonzero(~valid):
        key: Any = tuple(slice(step, step + 1) if d == time else slice(None) for d in single.dimensions)
        valid[step] = _any_valid(single.read(key, masked=True), axis)[0]
    return valid


def _any_valid(values: np.ndarray, axis: int) -> np.ndarray:
    valid = ~np.ma.getmaskarray(values)
    data = np.ma.getdata(values)
    if data.dtype.kind in "fc":
        valid &= ~np.isnan(data)
    return np.asarray(valid.any(axis=tuple(d for d in range(valid.ndim) if d != axis)))
