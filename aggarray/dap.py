"""Distributed Array Protocol: maps, distributions, exports and validation.

`MasterArray.local` returns the section of a process. `LocalArray.from_distarray` imports any object with ``__distarray__``.
"""

from aggarray.arrays.local import LocalArray
from aggarray.display.ownership import picture
from aggarray.maps import Block, Cyclic, Distribution, Map, Unstructured, convert, num_owned_indices, validate, validate_all

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
