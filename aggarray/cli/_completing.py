"""Shell completion of variables and dimensions of the sources on the line."""

import contextlib
import os
from typing import TYPE_CHECKING, Any

import click

from aggarray.errors import AggarrayError

if TYPE_CHECKING:
    from aggarray.opening import Aggregation


def variables_of(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of variables with a prefix."""
    agg = _opened(ctx)
    # promise: completion-safe-names
    return [] if agg is None else sorted(n for n in agg.names if n.startswith(incomplete) and _is_plain(n))


def dimensions_of(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return ``NAME=`` of dimensions with a prefix: of the variables on the line, else of all."""
    agg = _opened(ctx)
    chosen = ctx.params.get("variables") or ()
    names = {d for a in agg or () if not chosen or a.name in chosen for d in a.dimensions if _is_plain(d)}
    return sorted(f"{n}=" for n in names if f"{n}=".startswith(incomplete))


def _is_plain(name: str) -> bool:
    """Return whether a name from a file is safe on a shell line; a shell would execute some other names.

    >>> _is_plain("tas_2m.mean"), _is_plain("$(reboot)"), _is_plain("a b")
    (True, False, False)
    """
    return all(c.isalnum() or c in "_-.+/@%:," for c in name)


def _opened(ctx: click.Context) -> "Aggregation | None":
    """Return the aggregation of the source on the line; None unless it is a single readable file or index, which is fast."""
    from aggarray.opening import open

    # An option without a value stops the parser before it assigns the arguments.
    source: list[Any] = [*(ctx.params.get("source") or ctx.args)]
    if len(source) != 1 or not os.path.isfile(source[0]):
        return None
    with contextlib.suppress(AggarrayError, OSError):
        return open(source, processes=1)
    return None
