"""Collective error handling: all processes raise the error of one."""

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from aggarray.errors import AggarrayError, ExchangeError
from aggarray.mpi.transport.base import Link

_T = TypeVar("_T")


def agree(link: Link, say: Callable[[], _T], call: tuple[Any, ...] = ()) -> list[_T]:
    """Return the result of a call on every process, by rank.

    Where calls fail, all processes raise the error of the lowest rank. Errors of aggarray keep their class, others become
    ExchangeErrors; the message names the process. ``call``: a description of the operation, then values that must be equal on
    all processes; ExchangeError where they differ. Collective.
    """
    said: Any = None
    wrong: AggarrayError | None = None
    try:
        said = say()
    except AggarrayError as error:
        wrong = error
    except Exception as error:  # foreign code may raise any exception, and the other processes must not wait
        wrong = ExchangeError(f"{type(error).__name__}: {error}")
        wrong.__cause__ = error
    found = (
        [pickle.loads(words) for words in link.allgather(_packed(call, said, wrong))]
        if link.size > 1
        else [(call, said, wrong)]
    )
    for rank, (_, _, other) in enumerate(found):
        if other is not None:
            where = f"process {rank}: " if link.size > 1 else ""
            raise type(other)(f"{where}{other}") from (wrong and (wrong.__cause__ or wrong) if rank == link.rank else None)
    for rank, (other, _, _) in enumerate(found):
        _compare(found[0][0], rank, other)
    return [one for _, one, _ in found]


def _packed(call: tuple[Any, ...], said: Any, wrong: AggarrayError | None) -> bytes:
    try:
        return pickle.dumps((call, said, wrong), protocol=5)
    except Exception as error:  # pickling runs foreign code
        return pickle.dumps((call[:1], None, ExchangeError(f"{type(error).__name__}: {error}")), protocol=5)


def _compare(first: tuple[Any, ...], rank: int, other: tuple[Any, ...]) -> None:
    """Raise ExchangeError where processes call different operations."""
    if first[:1] != other[:1]:
        names = [str(call[0]) if call else "something else" for call in (first, other)]
        raise ExchangeError(f"process 0 calls {names[0]}, process {rank} {names[1]}: call the same everywhere")
    if first != other:
        differ = [f"{a} and {b}" for a, b in zip(first[1:], other[1:], strict=False) if a != b]
        raise ExchangeError(
            f"{first[0]}: processes 0 and {rank} do not want the same ({', '.join(differ)}): call the same everywhere"
        )


def shared(link: Link, make: Callable[[], _T], call: tuple[Any, ...] = ()) -> _T:
    """Return the result of a call on process 0 on all processes.

    All processes raise its error. Collective.
    """
    return agree(link, lambda: None if link.rank else make(), call)[0]  # type: ignore[return-value]
