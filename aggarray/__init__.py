"""aggarray: one array out of many files.

>>> import aggarray as aa
>>> agg = aa.open("sample_data/tiles")
>>> agg["value"].pmshape
(4, 6)
"""

from aggarray.aggregate.report import Duplicate, Problem, Report
from aggarray.aggregate.rules import Refusal, Rules, Skipped
from aggarray.api import Aggregation, concat, open
from aggarray.errors import (
    AggarrayError,
    AggregationError,
    ExchangeError,
    FormatError,
    IndexFileError,
    MissingFileError,
    NotFoundError,
    ProtocolError,
    SelectionError,
    UnitsError,
)
from aggarray.master import MasterArray, Partition, PartitionMatrix, SubArray
from aggarray.options import set_options

__version__ = "0.1.0"

__all__ = [
    "AggarrayError",
    "Aggregation",
    "AggregationError",
    "Duplicate",
    "ExchangeError",
    "FormatError",
    "IndexFileError",
    "MasterArray",
    "MissingFileError",
    "NotFoundError",
    "Partition",
    "PartitionMatrix",
    "Problem",
    "ProtocolError",
    "Refusal",
    "Report",
    "Rules",
    "SelectionError",
    "Skipped",
    "SubArray",
    "UnitsError",
    "concat",
    "open",
    "set_options",
]
