"""Collective error handling: all processes raise the error of one."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from aggarray.errors import AggarrayError, ExchangeError
from aggarray.mpi.transport.base import Link

_T = TypeVar("_T")


def agree(link: Link, produce: Callable[[], _T], call: tuple[Any, ...] = ()) -> list[_T]:
    """Return the result of a call on every process, by rank.

    Where calls fail, all processes raise the error of the lowest rank. Errors of aggarray keep their class and attributes,
    others become ExchangeErrors; the message names the process. ``call``: a description of the operation, then values that must
    be equal on all processes; ExchangeError where they differ. Collective.
    """
    result: Any = None
    own_error: AggarrayError | None = None
    try:
        result = produce()
    except AggarrayError as error:
        own_error = error
    except Exception as error:  # foreign code may raise any exception, and the other processes must not wait
        own_error = ExchangeError(f"{type(error).__name__}: {error}")
        own_error.__cause__ = error
    if link.size == 1:
        if own_error is not None:
            raise own_error
        return [result]
    try:
        pickled = pickle.dumps((call, result, own_error), protocol=5)
    except Exception as error:  # pickling runs foreign code
        pickled = pickle.dumps((call[:1], None, ExchangeError(f"{type(error).__name__}: {error}")), protocol=5)
    gathered = [pickle.loads(data) for data in link.allgather(pickled)]
    for rank, (_, _, failure) in enumerate(gathered):
        if failure is not None:
            failure.args = (f"process {rank}: {' '.join(map(str, failure.args))}",)
            raise failure from (own_error and (own_error.__cause__ or own_error) if rank == link.rank else None)
    for rank, (other, _, _) in enumerate(gathered):
        _compare(gathered[0][0], rank, other)
    return [item for _, item, _ in gathered]


def _compare(first: tuple[Any, ...], rank: int, other: tuple[Any, ...]) -> None:
    """Raise ExchangeError where processes call different operations."""
    if first[:1] != other[:1]:
        names = [str(call[0]) if call else "another operation" for call in (first, other)]
        reason = f"process 0 calls {names[0]}, process {rank} {names[1]}"
        raise ExchangeError(reason, hint="call the same operation on all processes")
    if first != other:
        values = [f"{a} and {b}" for a, b in zip(first[1:], other[1:], strict=False) if a != b]
        reason = f"{first[0]}: processes 0 and {rank} differ ({', '.join(values)})"
        raise ExchangeError(reason, hint="give the same values on all processes")


def call_on_all(link: Link, produce: Callable[[], _T], call: tuple[Any, ...] = ()) -> _T:
    """Return the result of a call once it succeeds on all. Collective."""
    results: list[_T] = []
    agree(link, lambda: results.append(produce()), call)
    return results[0]


def call_on_root(link: Link, produce: Callable[[], _T], call: tuple[Any, ...] = ()) -> _T:
    """Return the result of a call on process 0, or raise its error, on all."""
    return agree(link, lambda: None if link.rank else produce(), call)[0]  # type: ignore[return-value]
