"""Arrays in memory: their type, block and access.

An array has a type, a position in a block of memory, and an access. Slices are views, and the block lives as long as the last
of them. Memory that is shared read-only cannot be made writable by its receiver. `view` never copies, `asarray` copies only
where it must, `array` always copies. `type_string` returns the type of an array, `debug_repr` its memory layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggarray.memory.arrays import Array
    from aggarray.memory.block import Access, Block
    from aggarray.memory.creation import array, asarray, view
    from aggarray.memory.debug import debug_repr, type_string
    from aggarray.memory.ragged import Ragged
    from aggarray.memory.types import Type, parse_type

#: The public names of each module, which is imported when one is first used.
_NAMES = {
    "arrays": ("Array",),
    "block": ("Access", "Block"),
    "creation": ("array", "asarray", "view"),
    "debug": ("debug_repr", "type_string"),
    "ragged": ("Ragged",),
    "types": ("Type", "parse_type"),
}

__all__ = ["Access", "Array", "Block", "Ragged", "Type", "array", "asarray", "debug_repr", "parse_type", "type_string", "view"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        import importlib

        for module, names in _NAMES.items():
            if name in names:
                value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
                return value
        raise AttributeError(f"module 'aggarray.memory' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
