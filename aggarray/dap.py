"""What speaks the Distributed Array Protocol? Maps, distributions, exports and their validation, handed on from their modules.

`MasterArray.local` gives a process its section; anything with ``__distarray__`` comes in by `LocalArray.from_distarray`.
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
