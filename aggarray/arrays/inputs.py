"""Arrays from which values in memory were computed.

Values know the array that a reduction has read, as long as they are in the memory of this process. Saved and pickled values
do not: their `history` names it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from aggarray.dataclass import NamedTuple, dataclass

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray
    from aggarray.arrays.sources import Source

#: What values in memory were computed from, by the number of the object, with a reference that does not keep it.
_inputs: dict[int, tuple[weakref.ref[np.ndarray], Inputs]] = {}


class Relation(NamedTuple):
    """Positions along an axis of a result, and those that they need.

    ``axis``: of the input. A position is computed from ``steps`` successive ones, or from those whose number in ``inputs`` is
    its own in ``results``.
    """

    axis: int
    steps: int = 1
    results: np.ndarray | None = None
    inputs: np.ndarray | None = None

    def inputs_of(self, positions: np.ndarray) -> np.ndarray:
        """Return the positions in the input, increasing."""
        if self.results is not None and self.inputs is not None:
            return np.flatnonzero(np.isin(self.inputs, self.results[positions]))
        if not len(positions):
            return positions
        ends = np.zeros(int(positions.max()) + self.steps + 1, np.int64)
        np.add.at(ends, positions, 1)
        np.add.at(ends, positions + self.steps, -1)
        return np.flatnonzero(np.cumsum(ends))

    def uses(self, positions: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return for each position whether it is computed from a chosen one.

        ``chosen``: increasing.
        """
        if self.results is not None and self.inputs is not None:
            return np.isin(self.results[positions], self.inputs[chosen])
        return np.searchsorted(chosen, positions) < np.searchsorted(chosen, positions + self.steps)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The array that values were computed from.

    ``relations``: of the dimensions of the values, None for one of the operation; other dimensions of ``array`` were read
    whole. ``operation``: in words.
    """

    array: MasterArray
    relations: tuple[Relation | None, ...]
    operation: str


def remember_inputs(result: MasterArray, inputs: Inputs) -> MasterArray:
    """Return an array in memory, noting what its values were computed from."""
    (values,) = result._matrix.references.memory
    number = id(values)
    _inputs[number] = weakref.ref(values, lambda _: _inputs.pop(number, None)), inputs
    return result


def inputs_of(values: np.ndarray) -> Inputs | None:
    """Return what values were computed from, None if that is not known."""
    reference, inputs = _inputs.get(id(values), (None, None))
    return inputs if reference is not None and reference() is values else None


def input_sources(
    inputs: Inputs, selection: Sequence[np.ndarray], places: Sequence[tuple[int, np.ndarray] | None]
) -> list[tuple[Source, dict[int, np.ndarray]]]:
    """Return the sources of a part of values, with the positions of each.

    ``selection``: positions along each dimension of the values; ``places``: the axis of the array that has them, and the
    positions there in the same order. Positions are by axis of that array.
    """
    array = inputs.array
    key: list[slice | np.ndarray] = [slice(None)] * array.ndim
    for relation, positions in zip(inputs.relations, selection, strict=True):
        if relation is not None:
            key[relation.axis] = relation.inputs_of(positions)
    found = []
    for source in array.sources(tuple(key)):
        served = {}
        for relation, positions, place in zip(inputs.relations, selection, places, strict=True):
            if place is not None and relation is not None:
                chosen = np.arange(array.shape[relation.axis])[source.location[relation.axis]]
                served[place[0]] = np.sort(place[1][relation.uses(positions, chosen)])
        if all(len(positions) for positions in served.values()):
            found.append((source, served))
    return found
