"""Ragged arrays of a file: those along a sample dimension (CF chapter 9)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import ragged
from aggarray.arrays.row_geometry import Geometry, Part
from aggarray.cf.attributes import basename, text_attribute, words
from aggarray.formats.base import SIZES, Structure, Variable
from aggarray.scan.roles import Sampling

#: Limit of the number of instances that a damaged file declares, until its rows are checked.
_HIGHEST = 1 << 62

#: Attributes of coordinates and identifiers of instances, and units of positions (CF sections 4.1, 4.2 and 9.5).
_DESCRIBING = frozenset(("cf_role", "axis"))
_PLACE = re.compile(r"degrees?_?[NE](orth|ast)?", re.IGNORECASE)

#: The name of a first dimension without a name.
NAMELESS = "dim_0"

#: Returns a variable of a file, with its rows one after the other if flat, as an array; None if it cannot be used.
ArrayFactory = Callable[[str, bool], MasterArray | None]


def with_rows(
    structure: Structure, samplings: Sequence[Sampling], arrays: Sequence[MasterArray], array: ArrayFactory
) -> list[MasterArray]:
    """Return the data variables of a file, ragged ones along their samples."""
    results = list(arrays)
    structural = {name for sampling in samplings for name in (sampling.counts, sampling.index) if name is not None}
    for sampling in samplings:
        results = _FileSamplings(structure, sampling, structural, array).applied(results)
    return results


class _FileSamplings:
    """One sampling of a file, and the variables of its group."""

    def __init__(self, structure: Structure, sampling: Sampling, structural: set[str], array: ArrayFactory) -> None:
        self.sampling, self._structural, self._array = sampling, structural, array
        self._flat = bool(sampling.present)
        self._along = (sampling.instances, sampling.samples) if self._flat else (sampling.samples,)
        self._sizes = structure.sizes or {}
        self.variables = [v for v in structure.variables if v.name.rpartition("/")[0] == sampling.group]
        self._named = {basename(w) for v in self.variables for w in words(v.attrs.get("coordinates"))}

    def applied(self, arrays: list[MasterArray]) -> list[MasterArray]:
        """Return the arrays with those of this sampling as ragged arrays."""
        one = self.sampling
        rows = [v.name for v in self.variables if v.dimensions == self._along and v.name not in self._structural]
        named = {a.name for a in arrays}
        if named.isdisjoint(rows):
            return arrays
        shape = next(v.shape for v in self.variables if v.name in rows)
        geometry = self._geometry(shape)
        if geometry is None:
            return arrays
        attached = self._attached(geometry)
        made = {a.name or "": self._ragged(a, geometry, attached) for a in arrays if a.name in rows}
        usable = {name: array for name, array in made.items() if array is not None}
        # Variables with further dimensions remain data variables too.
        idle = {one.counts, one.index, *(c.name for c in attached.values() if len(c.shape) < 2)}
        if any(f"{v.name}{SIZES}" == one.counts for v in self.variables):
            # So do variables beside rows of variable length, unless they identify or locate instances.
            idle -= {v.name for v in self.variables if v.name != one.counts and not self._describes(v)}
        return [usable.get(a.name or "", a) for a in arrays if a.name not in idle]

    def _geometry(self, shape: tuple[int, ...]) -> Geometry | None:
        """Return the rows of samples of a shape, None if counts are unusable."""
        one, samples = self.sampling, prod(shape)
        counts, index = (None if name is None else self._array(name, False) for name in (one.counts, one.index))
        present = [self._array(name, True) for name in one.present]
        usable = tuple(a for a in present if a is not None)
        if (counts is None) != (one.counts is None) or (index is None) != (one.index is None) or len(usable) < len(present):
            return None
        runs = samples if counts is None else counts.shape[0]
        instances = shape[0] if self._flat else self._size(runs, index)
        cuts = np.array([[0, 0, 0], [instances, runs, samples]])
        return Geometry(one.instances, (Part(cuts, counts, index, usable),))

    def _size(self, runs: int, index: MasterArray | None) -> int:
        """Return the number of instances from a variable, dimension or index."""
        if index is None:
            return runs
        name, group = self.sampling.instances, self.sampling.group
        for v in self.variables:
            if name in v.dimensions:
                return v.shape[v.dimensions.index(name)]
        path = f"{group}/{name}" if group else name
        if path in self._sizes:
            return self._sizes[path]
        # Invalid indices raise errors when the rows are read.
        values, mask = index._values_and_mask()
        used = values if mask is None else values[~mask]
        finite = used[np.isfinite(used)] if used.dtype.kind in "iuf" else used[:0]
        return min(max(int(finite.max()), -1), _HIGHEST) + 1 if finite.size else 0

    def _attached(self, geometry: Geometry) -> dict[str, MasterArray]:
        """Return the variables along instances; those along runs as ragged arrays."""
        one, attached = self.sampling, {}
        # Unnamed dimensions of equal number are not the same dimension.
        named = one.instances != NAMELESS
        own = [v for v in self.variables if named and v.dimensions[:1] == (one.instances,) and v.name not in self._structural]
        for v in own:
            is_of_rows = self._flat and one.samples in v.dimensions
            array = None if is_of_rows or v.shape[0] != geometry.size else self._array(v.name, False)
            if array is not None:
                attached[basename(v.name)] = array
        if one.index is None or one.runs is None:
            return attached
        runs = Geometry(one.instances, tuple(part.of_runs() for part in geometry.parts))
        for v in self.variables:
            array = self._array(v.name, False) if v.dimensions == (one.runs,) and v.name != one.index else None
            if array is not None:
                attached[basename(v.name)] = ragged(array, runs, {})
        return attached

    def _describes(self, variable: Variable) -> bool:
        """Return whether a variable identifies or locates instances."""
        attrs, name = variable.attrs, basename(variable.name)
        if name in self._named or variable.dimensions == (name,) or not _DESCRIBING.isdisjoint(attrs):
            return True
        return variable.dtype.kind == "T" or bool(_PLACE.fullmatch(text_attribute(attrs.get("units")) or ""))

    def _ragged(self, array: MasterArray, geometry: Geometry, attached: Mapping[str, MasterArray]) -> MasterArray | None:
        """Return the samples of a variable in rows, None if they are unusable."""
        samples, coords = self._samples(array), dict[str, MasterArray]()
        if samples is None:
            return None
        for name, one in array.coords.items():
            along = self._samples(one) if one.dimensions == array.dimensions else None
            if along is not None:
                coords[name] = ragged(along, geometry, {})
            # Numbers of the positions within a row do not describe samples.
            elif one.name != self.sampling.index and not (self._flat and one.dimensions == self._along[1:]):
                coords[name] = one
        return ragged(samples, geometry, {**coords, **{n: c for n, c in attached.items() if n not in coords}})

    def _samples(self, array: MasterArray) -> MasterArray | None:
        return self._array(array.name or "", True) if self._flat else array
