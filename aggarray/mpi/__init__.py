"""Process groups, collectives, redistribution, parallel input and output.

`ProcessGroup` uses a communicator of mpi4py (the extra ``mpi``). `ProcessGroup.serial` runs one process without an MPI library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggarray.mpi.collectives import AllSumReduce, Broadcast, SumReduce
    from aggarray.mpi.groups import ProcessGrid, ProcessGroup
    from aggarray.mpi.ragged import RaggedRepartition
    from aggarray.mpi.reading import local, open
    from aggarray.mpi.redistribution import HaloExchange, Repartition
    from aggarray.mpi.reduction import reduce
    from aggarray.mpi.writing import write

#: The public names of each module, which is imported when one is first used.
_NAMES = {
    "collectives": ("AllSumReduce", "Broadcast", "SumReduce"),
    "groups": ("ProcessGrid", "ProcessGroup"),
    "ragged": ("RaggedRepartition",),
    "reading": ("local", "open"),
    "redistribution": ("HaloExchange", "Repartition"),
    "reduction": ("reduce",),
    "writing": ("write",),
}

__all__ = [
    "AllSumReduce",
    "Broadcast",
    "HaloExchange",
    "ProcessGrid",
    "ProcessGroup",
    "RaggedRepartition",
    "Repartition",
    "SumReduce",
    "local",
    "open",
    "reduce",
    "write",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        import importlib

        for module, names in _NAMES.items():
            if name in names:
                value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
                return value
        raise AttributeError(f"module 'aggarray.mpi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
