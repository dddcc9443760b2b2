"""How does a user get from a folder of files to arrays? `open` and `concat`, and the `Aggregation` that opening gives.

`extract` writes values of arrays to one file.
"""

from aggarray.aggregate.concat import concat
from aggarray.api.aggregation import Aggregation
from aggarray.api.extracting import Extracted, extract
from aggarray.api.opening import open

__all__ = ["Aggregation", "Extracted", "concat", "extract", "open"]
