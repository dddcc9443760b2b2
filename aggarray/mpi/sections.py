"""Sections that processes hold together: local arrays or DAP exports."""

from __future__ import annotations

from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.arrays.ragged_local import LocalRagged
from aggarray.errors import ExchangeError, ProtocolError
from aggarray.maps import Distribution
from aggarray.mpi.metadata import ReducedArray, metadata_of
from aggarray.mpi.redistribution import describe_distribution
from aggarray.mpi.transport.agreement import agree
from aggarray.mpi.transport.base import Link


def import_sections(link: Link, local: Any, what: str) -> tuple[LocalArray, list[list[int]]]:
    """Return the section of this process, and the holders of each section.

    ``local``: a LocalArray, a LocalRagged (its samples are used), or an exporter with ``__distarray__``, in which case the
    exports of all processes determine the distribution. The processes are listed by rank of the distribution, the lowest first.
    Collective; raises ExchangeError on all processes for parts of different arrays, or missing parts.
    """
    local = local.samples if isinstance(local, LocalRagged) else local
    has_metadata = isinstance(local, ReducedArray) or (isinstance(local, LocalArray) and local.source is not None)
    if all(agree(link, lambda: has_metadata, (what,))):
        return local, _find_holders(link, local, what)
    return _import_export(link, local, what), [[p] for p in range(link.size)]


def _find_holders(link: Link, local: LocalArray, what: str) -> list[list[int]]:
    description = metadata_of(local).summary, describe_distribution(local.distribution), local.dtype.str[1:]
    ranks = agree(link, lambda: local.rank, (what, *description))
    nprocs = local.distribution.nprocs
    missing = sorted(set(range(nprocs)) - set(ranks))
    if missing:
        reason = f"none of {link.size} processes has the section of rank {missing[0]} of a distribution over {nprocs}"
        raise ExchangeError(f"{what}: {reason}", hint="give all sections")
    return [[p for p, own in enumerate(ranks) if own == rank] for rank in range(nprocs)]


def _import_export(link: Link, local: Any, what: str) -> LocalArray:
    """Return the section of an exporter, by the distribution of all exports."""

    def read_export() -> tuple[Any, ...]:
        if not hasattr(local, "__distarray__"):
            raise ExchangeError(f"{type(local).__name__} has no method __distarray__", hint="give a LocalArray or an exporter")
        export = local.__distarray__()
        buffer = LocalArray.from_distarray(export).buffer
        sections.append(buffer)
        # Indices may be any buffer; some buffers cannot be pickled.
        dim_data = [{k: np.asarray(v) if k == "indices" else v for k, v in entry.items()} for entry in export["dim_data"]]
        return export["__version__"], tuple(dim_data), buffer.shape, buffer.dtype.str[1:]

    sections: list[np.ndarray] = []
    exports = agree(link, read_export)
    versions, dim_data, shapes, dtypes = zip(*exports, strict=True)
    if len(set(dtypes)) > 1 or len(set(versions)) > 1:
        reason = f"{what}: dtypes {', '.join(sorted(set(dtypes)))}, versions {', '.join(sorted(set(versions)))}: give entry"
        raise ExchangeError(reason)
    try:
        distribution = Distribution.from_dim_data(dim_data, versions[0], shapes)
    except ProtocolError as error:
        raise ExchangeError(f"{what}: {' '.join(map(str, error.args))}", hint=error.hint) from error
    return LocalArray.holding(sections[0], distribution, link.rank)
