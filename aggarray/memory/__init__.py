"""What lies in memory, whose is it, and what may be done with it?

An array is a type, a place in a block of memory, and what may be done with it. Slices are views; the block lives as long as the
last of them; what is shared read-only stays read-only for whoever gets it. `view` never copies, `asarray` copies where it must,
`array` always; `type_string` says what an array holds, `debug_repr` what lies behind it.
"""

from aggarray.memory.arrays import Array
from aggarray.memory.block import Access, Block
from aggarray.memory.creation import array, asarray, view
from aggarray.memory.debug import debug_repr, type_string
from aggarray.memory.ragged import Ragged
from aggarray.memory.type_parser import parse_type
from aggarray.memory.types import Type

__all__ = ["Access", "Array", "Block", "Ragged", "Type", "array", "asarray", "debug_repr", "parse_type", "type_string", "view"]
