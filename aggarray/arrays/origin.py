"""Where does an array come from, so that it travels to another process as a few words rather than as its whole matrix?

An array of an index is found there again by its place; what was done to it lazily is done again. Arrays made otherwise travel
as they are, with the sub-arrays that they use.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Says how to make an array again: ``find(*place)`` gives it, then the lazy operations ``steps`` (name, arguments).

    ``witness``: objects of the array that it describes; an array that has others has been made into something else since.
    """

    find: Callable[..., Any]
    place: tuple[Any, ...]
    steps: tuple[tuple[str, Any], ...] = ()
    witness: tuple[object, ...] = ()

    def describes(self, witness: tuple[object, ...]) -> bool:
        """Tell whether this is still what an array is."""
        return len(witness) == len(self.witness) and all(a is b for a, b in zip(witness, self.witness, strict=True))

    def then(self, name: str, arguments: Any, witness: tuple[object, ...]) -> "Origin":
        """Return the origin of what an operation made."""
        return replace(self, steps=(*self.steps, (name, arguments)), witness=witness)


def restore_array(find: Callable[..., Any], place: tuple[Any, ...], steps: tuple[tuple[str, Any], ...]) -> Any:
    """Return the array that an `Origin` describes. Raises what ``find`` raises: IndexFileError where the index has changed."""
    array = find(*place)
    for name, arguments in steps:
        array = array.lazy[arguments] if name == "lazy" else getattr(array, name)(*arguments)
    return array
