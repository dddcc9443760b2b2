"""Ragged arrays as ordinary variables: samples, with counts or index.

These are the representations of CF chapter 9: the number of samples per instance if samples are in the order of instances,
else the instance of every sample, or of every run of samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray, selector_of
from aggarray.arrays.row_geometry import Geometry, read_integers
from aggarray.arrays.subarray import SubArray
from aggarray.cf.attributes import basename
from aggarray.dataclass import replace


def flatten_ragged(array: MasterArray) -> MasterArray:
    """Return the samples of a ragged array, any other array unchanged.

    The samples are an ordinary array. Its coordinates include those of the instances, and the counts or index of the samples,
    along dimensions of their own.
    """
    if not isinstance(array, RaggedMasterArray):
        return array
    geometry = array._instances
    sample_dimensions = array._matrix.dimensions
    coords: dict[str, MasterArray] = {}
    for name, coordinate in array.coords.items():
        if not isinstance(coordinate, RaggedMasterArray):
            coords[name] = coordinate
        elif geometry.stored or coordinate._matrix.dimensions == sample_dimensions or _has_runs(geometry):
            coords[name] = _samples(coordinate)
    return replace(_samples(array), coords={**coords, **_row_variables(array)})


def _has_runs(geometry: Geometry) -> bool:
    """Return whether instances have sized runs (indexed contiguous)."""
    return all(part.counts is not None and part.index is not None for part in geometry.parts)


def _samples(array: RaggedMasterArray) -> MasterArray:
    """Return all samples as stored, those of selected rows in row order."""
    flat = array._samples({})
    if array._instances.stored:
        return flat
    return flat._selected({flat.dimensions[0]: selector_of(array._rows.positions())})


def _row_variables(array: RaggedMasterArray) -> dict[str, MasterArray]:
    geometry, samples = array._instances, array._matrix.dimensions[0]
    if _has_runs(geometry):
        sizes = np.concatenate([_numbers(part.counts) for part in geometry.parts])
        instances, first = _run_instances(geometry), geometry.parts[0].counts
        along = geometry.dimension if first is None else first.dimensions[0]
        if geometry.chosen is not None:
            runs = replace(geometry, parts=tuple(part.of_runs() for part in geometry.parts), _found=[]).rows(array._access)
            sizes, instances = sizes[runs.positions()], np.repeat(np.arange(len(runs)), runs.counts)
        return {**_counts(array, sizes, along), **_index(array, instances, along)}
    rows = array._rows
    if not geometry.stored or rows.order is None:
        return _counts(array, rows.counts, geometry.dimension)
    index = np.empty(len(rows.order), np.int64)
    index[rows.order] = np.repeat(np.arange(len(rows)), rows.counts)
    return _index(array, index, samples)


def _numbers(array: MasterArray | None) -> np.ndarray:
    return np.zeros(0, np.int64) if array is None else read_integers(array)


def _run_instances(geometry: Geometry) -> np.ndarray:
    instances, before = [], 0
    for part in geometry.parts:
        instances.append(_numbers(part.index) + np.repeat(part.cuts[:-1, 0] + before, np.diff(part.cuts[:, 1])))
        before += int(part.cuts[-1, 0])
    return np.concatenate(instances)


def _counts(array: RaggedMasterArray, counts: np.ndarray, along: str) -> dict[str, MasterArray]:
    stored = [part.counts for part in array._instances.parts]
    return _variable(array, stored, f"{along}_size", counts, along, {"sample_dimension": array._matrix.dimensions[0]})


def _index(array: RaggedMasterArray, index: np.ndarray, along: str) -> dict[str, MasterArray]:
    stored, instances = [part.index for part in array._instances.parts], array.dimensions[0]
    return _variable(array, stored, f"{instances}_index", index, along, {"instance_dimension": instances})


def _variable(
    array: MasterArray, stored: Sequence[MasterArray | None], name: str, values: np.ndarray, along: str, attrs: dict[str, str]
) -> dict[str, MasterArray]:
    """Return values as a variable with its name in the files, else ``name``."""
    first = next((variable for variable in stored if variable is not None), None)
    name = basename(first.name) if first is not None and first.name else name
    if name in array.coords and not isinstance(array.coords[name], RaggedMasterArray):
        name = f"{name}_2"
    piece = SubArray.from_array(values, dimensions=(along,))
    variable = MasterArray.from_subarrays([([(0, len(values))], piece)], dimensions=(along,), name=name)
    return {name: replace(variable, attrs=attrs, _known=(values, None))}
