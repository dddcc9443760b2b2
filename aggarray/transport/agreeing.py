"""How do processes find out together that something is wrong, so that all raise an error and none waits for another?"""

from collections.abc import Callable
from typing import Any, TypeVar

from aggarray.errors import AggarrayError, ExchangeError
from aggarray.transport.base import Link

_T = TypeVar("_T")

#: What wrong arguments and failing disks raise. Anything else is a mistake in the program, which ends it.
EXPECTED = (AggarrayError, OSError, ValueError, TypeError, ArithmeticError, LookupError, MemoryError)


def together(link: Link, say: Callable[[], _T], call: Any = None) -> list[_T]:
    """Return what every process says, by rank; where it is an error, all raise that of the lowest rank. Collective.

    Errors of aggarray keep their class, others become ExchangeErrors; the message names the process. ``call``: what is being
    done; ExchangeError where processes are about to do different things.
    """
    mine: tuple[Any, Any, Any]
    try:
        mine = call, say(), None
    except EXPECTED as error:
        mine = call, None, error if isinstance(error, AggarrayError) else ExchangeError(f"{type(error).__name__}: {error}")
    found = link.allgather(mine)
    for rank, (_, _, wrong) in enumerate(found):
        if wrong is not None:
            where = f"process {rank}: " if link.size > 1 else ""
            raise type(wrong)(f"{where}{wrong}") from (mine[2] if rank == link.rank else None)
    for rank, (other, _, _) in enumerate(found):
        if other != found[0][0]:
            raise ExchangeError(
                f"process 0 calls {_text(found[0][0])}, process {rank} {_text(other)}: call the same everywhere"
            )
    return [said for _, said, _ in found]


def _text(call: Any) -> str:
    return " ".join(map(str, call)) if isinstance(call, tuple) else str(call)


def shared(link: Link, make: Callable[[], _T], root: int = 0) -> _T:
    """Return what one process makes, on all of them; its error is everybody's. Collective."""
    return together(link, lambda: make() if link.rank == root else None)[root]  # type: ignore[return-value]
