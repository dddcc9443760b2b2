"""Origin of an array, which is pickled instead of its matrix.

An array of an index is restored from its position there, and its lazy operations are repeated. Other arrays are pickled with
their matrix and the sub-arrays that they use.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aggarray.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Recipe of an array: how to find it, and the operations to repeat.

    ``find(*place)`` returns the array, then the lazy operations ``steps`` (name, arguments) follow. ``witness``: objects of
    the described array; an array with other objects was changed since.
    """

    find: Callable[..., Any]
    place: tuple[Any, ...]
    steps: tuple[tuple[str, Any], ...] = ()
    witness: tuple[object, ...] = ()

    def describes(self, witness: tuple[object, ...]) -> bool:
        """Return whether an array with these objects is the described one."""
        return len(witness) == len(self.witness) and all(a is b for a, b in zip(witness, self.witness, strict=True))

    def then(self, name: str, arguments: Any, witness: tuple[object, ...]) -> "Origin":
        """Return the origin of the result of an operation."""
        return replace(self, steps=(*self.steps, (name, arguments)), witness=witness)


def restore_array(find: Callable[..., Any], place: tuple[Any, ...], steps: tuple[tuple[str, Any], ...]) -> Any:
    """Return the array of an `Origin`; IndexFileError if its index changed."""
    array = find(*place)
    for name, arguments in steps:
        array = array.lazy[arguments] if name == "lazy" else getattr(array, name)(*arguments)
    return array
