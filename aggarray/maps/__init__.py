"""Which process has which part of an array? Maps, distributions and the Distributed Array Protocol (0.10.0 and 0.9.0).

Pure: nothing here reads data or knows a communication library. One module per distribution type (`base` says what it has);
`distribution` puts maps together; `dimdata`, `export` and `validation` read what other programs write.
"""

from aggarray.maps.base import Map
from aggarray.maps.block import Block
from aggarray.maps.cyclic import Cyclic
from aggarray.maps.dim_data import convert, num_owned_indices
from aggarray.maps.distribution import Distribution
from aggarray.maps.unstructured import Unstructured
from aggarray.maps.validation import validate, validate_all

__all__ = [
    "Block",
    "Cyclic",
    "Distribution",
    "Map",
    "Unstructured",
    "convert",
    "num_owned_indices",
    "validate",
    "validate_all",
]
