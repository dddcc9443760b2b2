"""Opening of files and indexes: `open`, `concat` and `Aggregation`."""

from aggarray.aggregate.concat import concat
from aggarray.opening.aggregation import Aggregation
from aggarray.opening.sources import open

__all__ = ["Aggregation", "concat", "open"]
