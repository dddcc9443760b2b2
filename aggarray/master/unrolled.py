"""What does a ragged array look like to software that has none? Its samples, with what says whose they are beside them.

That is CF's own way (chapter 9): a count of samples per instance where samples lie in the order of instances, else the instance
of every sample, or of every run of samples.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from aggarray.master.array import MasterArray
from aggarray.master.geometry import Geometry
from aggarray.master.ragged import RaggedMasterArray
from aggarray.master.subarray import SubArray
from aggarray.selection import Range, as_range


def unrolled(array: MasterArray) -> MasterArray:
    """Return the samples of a ragged array as an ordinary one, any other array as it is.

    What there is of the instances, and which samples are whose, hangs on it as coordinates, along dimensions of their own.
    """
    if not isinstance(array, RaggedMasterArray):
        return array
    geometry = array._instances
    told = _told(array) if geometry.stored else _count(array, array.counts)
    own = array._matrix.dimensions
    coords: dict[str, MasterArray] = {}
    for name, coordinate in array.coords.items():
        if not isinstance(coordinate, RaggedMasterArray):
            coords[name] = coordinate
        elif geometry.stored or coordinate._matrix.dimensions == own:
            coords[name] = _unrolled(coordinate)
    return replace(_unrolled(array), coords={**coords, **told})


def _unrolled(array: RaggedMasterArray) -> MasterArray:
    """Return the samples: all as they are stored, of selected rows in their order."""
    flat = array._samples({})
    if array._instances.stored:
        return flat
    places = array._rows.places()
    found = places if isinstance(places, slice) else (as_range(places) or places)
    key: Any = Range(found.start, found.stop - found.start) if isinstance(found, slice) else found
    return flat._selected({flat.dimensions[0]: key})


def _told(array: RaggedMasterArray) -> dict[str, MasterArray]:
    """Return what says whose samples are as they are stored."""
    geometry, rows = array._instances, array._rows
    if all(part.counts is not None and part.index is not None for part in geometry.parts):
        counts = [_numbers(part.counts) for part in geometry.parts]
        return {**_run_counts(array, np.concatenate(counts)), **_index(array, _of_parts(geometry), _run_dimension(geometry))}
    if rows.order is None:
        return _count(array, rows.counts)
    index = np.empty(len(rows.order), np.int64)
    index[rows.order] = np.repeat(np.arange(len(rows)), rows.counts)
    return _index(array, index, array._matrix.dimensions[0])


def _numbers(array: MasterArray | None) -> np.ndarray:
    return np.zeros(0, np.int64) if array is None else np.asarray(array._values_and_mask()[0], np.int64)


def _run_dimension(geometry: Geometry) -> str:
    counts = geometry.parts[0].counts
    return geometry.dimension if counts is None else counts.dimensions[0]


def _of_parts(geometry: Geometry) -> np.ndarray:
    """Return the instance of each run of samples, counted through all files."""
    found, before = [], 0
    for part in geometry.parts:
        sizes = np.diff(part.cuts[:, 1])
        shifts = np.repeat(part.cuts[:-1, 0] + before, sizes)
        found.append(_numbers(part.index) + shifts)
        before += int(part.cuts[-1, 0])
    return np.concatenate(found)


def _count(array: RaggedMasterArray, counts: np.ndarray) -> dict[str, MasterArray]:
    name = f"{array.dimensions[0]}_size"
    return _beside(array, name, counts, array.dimensions[0], {"sample_dimension": array._matrix.dimensions[0]})


def _run_counts(array: RaggedMasterArray, counts: np.ndarray) -> dict[str, MasterArray]:
    dimension = _run_dimension(array._instances)
    given = array._instances.parts[0].counts
    name = f"{dimension}_size" if given is None or given.name is None else given.name.rpartition("/")[2]
    return _beside(array, name, counts, dimension, {"sample_dimension": array._matrix.dimensions[0]})


def _index(array: RaggedMasterArray, index: np.ndarray, along: str) -> dict[str, MasterArray]:
    return _beside(array, f"{array.dimensions[0]}_index", index, along, {"instance_dimension": array.dimensions[0]})


def _beside(array: MasterArray, name: str, values: np.ndarray, along: str, attrs: dict[str, str]) -> dict[str, MasterArray]:
    if name in array.coords and not isinstance(array.coords[name], RaggedMasterArray):
        name = f"{name}_2"
    piece = SubArray.from_array(values, dimensions=(along,))
    made = MasterArray.from_subarrays([([(0, len(values))], piece)], dimensions=(along,), name=name)
    return {name: replace(made, attrs=attrs, _known=(values, None))}
