"""aggarray: aggregates many files into one array.

>>> import aggarray as aa
>>> agg = aa.open("sample_data/tiles")
>>> agg["value"].pmshape
(4, 6)
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggarray.aggregate.concat import concat
    from aggarray.aggregate.report import Problem, Report
    from aggarray.aggregate.rules import Duplicate, Refusal, Rules, Skipped
    from aggarray.arrays.master import MasterArray
    from aggarray.arrays.partitions import Partition, PartitionMatrix
    from aggarray.arrays.sources import Source
    from aggarray.arrays.subarray import SubArray
    from aggarray.errors import (
        AccessError,
        AggarrayError,
        AggregationError,
        ExchangeError,
        ForbiddenPathError,
        FormatError,
        IndexFileError,
        MemoryAccessError,
        MissingFileError,
        NotFoundError,
        ProtocolError,
        SelectionError,
        UnitsError,
    )
    from aggarray.opening.aggregation import Aggregation
    from aggarray.opening.sources import open
    from aggarray.options import set_options
    from aggarray.scan.fixes import Fix

__version__ = "0.1.0"

#: Modules of the public names, except errors. Names are imported on first access, so that worker processes start quickly.
_HOMES = {
    "aggarray.aggregate.report": ("Problem", "Report"),
    "aggarray.aggregate.rules": ("Duplicate", "Refusal", "Rules", "Skipped"),
    "aggarray.aggregate.concat": ("concat",),
    "aggarray.arrays.master": ("MasterArray",),
    "aggarray.arrays.partitions": ("Partition", "PartitionMatrix"),
    "aggarray.arrays.sources": ("Source",),
    "aggarray.arrays.subarray": ("SubArray",),
    "aggarray.opening.aggregation": ("Aggregation",),
    "aggarray.opening.sources": ("open",),
    "aggarray.options": ("set_options",),
    "aggarray.scan.fixes": ("Fix",),
}

__all__ = ["AccessError", "AggarrayError", "Aggregation", "AggregationError", "Duplicate", "ExchangeError"]
__all__ += ["Fix", "ForbiddenPathError", "FormatError", "IndexFileError", "MasterArray", "MemoryAccessError"]
__all__ += ["MissingFileError", "NotFoundError", "Partition", "PartitionMatrix", "Problem", "ProtocolError"]
__all__ += ["Refusal", "Report", "Rules", "SelectionError", "Skipped", "Source", "SubArray", "UnitsError"]
__all__ += ["concat", "open", "set_options"]


if not TYPE_CHECKING:  # type checkers then report names that do not exist

    def __getattr__(name: str) -> Any:
        """Import a public name on first access."""
        import importlib

        if name not in __all__:
            from aggarray.errors import near_names

            near = "" if name.startswith("_") else near_names(name, __all__)
            raise AttributeError(f"module 'aggarray' has no attribute {name!r}{near and f'; {near}'}")
        from aggarray.garbage import lasting_objects

        home = next((module for module, names in _HOMES.items() if name in names), "aggarray.errors")
        with lasting_objects():  # garbage collection takes 5 % of a short process
            value = globals()[name] = getattr(importlib.import_module(home), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _FormerModules:
    """Meta path finder of former module names, which old pickles contain."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of a former module; None for any other name."""
        if not name.startswith("aggarray."):
            return None
        from aggarray.interop.former_names import find_spec

        return find_spec(name)


sys.meta_path.append(_FormerModules)
