"""What does a ragged array look like to software that has none? Its samples, with what says whose they are beside them.

That is CF's own way (chapter 9): a count of samples per instance where samples lie in the order of instances, else the instance
of every sample, or of every run of samples.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray, selector_of
from aggarray.arrays.row_geometry import Geometry, whole_numbers
from aggarray.arrays.subarray import SubArray
from aggarray.formats.base import basename


def unrolled(array: MasterArray) -> MasterArray:
    """Return the samples of a ragged array as an ordinary one, any other array as it is.

    What there is of the instances, and which samples are whose, hangs on it as coordinates, along dimensions of their own.
    """
    if not isinstance(array, RaggedMasterArray):
        return array
    geometry = array._instances
    own = array._matrix.dimensions
    coords: dict[str, MasterArray] = {}
    for name, coordinate in array.coords.items():
        if not isinstance(coordinate, RaggedMasterArray):
            coords[name] = coordinate
        elif geometry.stored or coordinate._matrix.dimensions == own or _has_runs(geometry):
            coords[name] = _unrolled(coordinate)
    return replace(_unrolled(array), coords={**coords, **_described(array)})


def _has_runs(geometry: Geometry) -> bool:
    """Tell whether instances have runs of samples, with sizes of their own (indexed contiguous)."""
    return all(part.counts is not None and part.index is not None for part in geometry.parts)


def _unrolled(array: RaggedMasterArray) -> MasterArray:
    """Return the samples: all as they are stored, of selected rows in their order."""
    flat = array._samples({})
    if array._instances.stored:
        return flat
    return flat._selected({flat.dimensions[0]: selector_of(array._rows.positions())})


def _described(array: RaggedMasterArray) -> dict[str, MasterArray]:
    """Return what says whose samples are which, in the order that `_unrolled` has them."""
    geometry, samples = array._instances, array._matrix.dimensions[0]
    if _has_runs(geometry):
        sizes = np.concatenate([_numbers(part.counts) for part in geometry.parts])
        owners, along = _of_parts(geometry), _run_dimension(geometry)
        if geometry.chosen is not None:
            runs = replace(geometry, parts=tuple(part.of_runs() for part in geometry.parts), _found=[]).rows(array._access)
            sizes, owners = sizes[runs.positions()], np.repeat(np.arange(len(runs)), runs.counts)
        return {**_counts(array, sizes, along), **_index(array, owners, along)}
    rows = array._rows
    if not geometry.stored or rows.order is None:
        return _counts(array, rows.counts, geometry.dimension)
    index = np.empty(len(rows.order), np.int64)
    index[rows.order] = np.repeat(np.arange(len(rows)), rows.counts)
    return _index(array, index, samples)


def _numbers(array: MasterArray | None) -> np.ndarray:
    return np.zeros(0, np.int64) if array is None else whole_numbers(array)


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


def _counts(array: RaggedMasterArray, counts: np.ndarray, along: str) -> dict[str, MasterArray]:
    given = [part.counts for part in array._instances.parts if part.counts is not None]
    return _beside(array, _name(given, f"{along}_size"), counts, along, {"sample_dimension": array._matrix.dimensions[0]})


def _index(array: RaggedMasterArray, index: np.ndarray, along: str) -> dict[str, MasterArray]:
    given = [part.index for part in array._instances.parts if part.index is not None]
    name = _name(given, f"{array.dimensions[0]}_index")
    return _beside(array, name, index, along, {"instance_dimension": array.dimensions[0]})


def _name(given: Sequence[MasterArray], otherwise: str) -> str:
    """Return the name that files have for it, so that arrays that have something else there have another name for it."""
    return basename(given[0].name) if given and given[0].name else otherwise


def _beside(array: MasterArray, name: str, values: np.ndarray, along: str, attrs: dict[str, str]) -> dict[str, MasterArray]:
    if name in array.coords and not isinstance(array.coords[name], RaggedMasterArray):
        name = f"{name}_2"
    piece = SubArray.from_array(values, dimensions=(along,))
    made = MasterArray.from_subarrays([([(0, len(values))], piece)], dimensions=(along,), name=name)
    return {name: replace(made, attrs=attrs, _known=(values, None))}
