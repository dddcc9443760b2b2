"""Sections that processes hold together: local arrays or DAP exports."""

from typing import Any

import numpy as np

from aggarray.arrays.local import LocalArray
from aggarray.arrays.ragged_local import LocalRagged
from aggarray.errors import ExchangeError, ProtocolError
from aggarray.maps import Distribution
from aggarray.mpi.metadata import ReducedArray, metadata_of
from aggarray.mpi.redistribution import described
from aggarray.mpi.transport import Link, agree


def import_sections(link: Link, local: Any, what: str) -> tuple[LocalArray, list[list[int]]]:
    """Return the section of this process, and the holders of each section.

    ``local``: a LocalArray, a LocalRagged (its samples are used), or an exporter with ``__distarray__``, in which case the
    exports of all processes determine the distribution. The processes are listed by rank of the distribution, the lowest first.
    Collective; raises ExchangeError on all processes for parts of different arrays, or missing parts.
    """
    local = local.samples if isinstance(local, LocalRagged) else local
    own = isinstance(local, ReducedArray) or (isinstance(local, LocalArray) and local.source is not None)
    if all(agree(link, lambda: own, (what,))):
        return local, _holders(link, local, what)
    return _imported(link, local, what), [[p] for p in range(link.size)]


def _holders(link: Link, local: LocalArray, what: str) -> list[list[int]]:
    """Return the processes that hold each section.

    Several processes hold each section of a reduced array.
    """
    found = agree(
        link,
        lambda: local.rank,
        (what, metadata_of(local).words, described(local.distribution), local.dtype.str[1:]),
    )
    missing = sorted(set(range(local.distribution.nprocs)) - set(found))
    if missing:
        raise ExchangeError(
            f"{what}: {link.size} processes hold a distribution over {local.distribution.nprocs}, and none the section of "
            f"rank {missing[0]}: give all of them"
        )
    return [[p for p, own in enumerate(found) if own == rank] for rank in range(local.distribution.nprocs)]


def _imported(link: Link, local: Any, what: str) -> LocalArray:
    """Return the section of an exporter.

    The exports of all processes determine the distribution.
    """

    def say() -> tuple[Any, ...]:
        if not hasattr(local, "__distarray__"):
            raise ExchangeError(f"{type(local).__name__} does not export by __distarray__: give a LocalArray, or an exporter")
        export = local.__distarray__()
        buffer = LocalArray.from_distarray(export).buffer
        sections.append(buffer)
        # Indices may be any buffer; some buffers cannot be pickled.
        dim_data = [{k: np.asarray(v) if k == "indices" else v for k, v in one.items()} for one in export["dim_data"]]
        return export["__version__"], tuple(dim_data), buffer.shape, buffer.dtype.str[1:]

    sections: list[np.ndarray] = []
    found = agree(link, say)
    versions, dim_data, shapes, dtypes = zip(*found, strict=True)
    if len(set(dtypes)) > 1 or len(set(versions)) > 1:
        raise ExchangeError(
            f"{what}: dtypes {', '.join(sorted(set(dtypes)))}, versions {', '.join(sorted(set(versions)))}: give one"
        )
    try:
        distribution = Distribution.from_dim_data(dim_data, versions[0], shapes)
    except ProtocolError as error:
        raise ExchangeError(f"{what}: {error}") from error
    return LocalArray.holding(sections[0], distribution, link.rank)
