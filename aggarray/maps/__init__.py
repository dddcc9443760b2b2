"""Maps and distributions of arrays over processes, and their DAP exports.

Implements the Distributed Array Protocol (DAP) 0.10.0 and 0.9.0. The package reads no data and uses no communication library.
Each distribution type has a module of its own; `base` defines its interface. `distribution` combines maps; `dim_data` and
`validation` read what other programs export.
"""

from __future__ import annotations

from aggarray.maps.base import Map
from aggarray.maps.block import Block
from aggarray.maps.cyclic import Cyclic
from aggarray.maps.dim_data import convert, num_owned_indices
from aggarray.maps.distribution import Distribution
from aggarray.maps.unstructured import Unstructured
from aggarray.maps.validation import validate, validate_all

__all__ = ["Block", "Cyclic", "Distribution", "Map", "Unstructured", "convert", "num_owned_indices", "validate", "validate_all"]
