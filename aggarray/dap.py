"""Distributed Array Protocol: maps, distributions, exports and validation.

`MasterArray.local` returns the section of a process. `LocalArray.from_distarray` imports any object with ``__distarray__``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from aggarray.maps import Block, Cyclic, Distribution, Map, Unstructured, convert, num_owned_indices, validate, validate_all

if TYPE_CHECKING:
    from aggarray.arrays.local import LocalArray
    from aggarray.display.ownership import picture

#: Modules of names that load arrays, which maps and distributions do not need.
_HOMES = {"LocalArray": "aggarray.arrays.local", "picture": "aggarray.display.ownership"}

__all__ = [
    "Block",
    "Cyclic",
    "Distribution",
    "LocalArray",
    "Map",
    "Unstructured",
    "convert",
    "num_owned_indices",
    "picture",
    "validate",
    "validate_all",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'aggarray.dap' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
