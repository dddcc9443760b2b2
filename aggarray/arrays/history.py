"""Lines of the global attribute ``history``."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aggarray.errors import printable

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray


def history_line(command: str) -> str:
    """Return a line that begins with the present time.

    The environment variable SOURCE_DATE_EPOCH (seconds since 1970) replaces it.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    zone = datetime.UTC
    now = datetime.datetime.fromtimestamp(int(epoch), zone) if epoch.isdigit() else datetime.datetime.now(zone)
    return f"{now:%Y-%m-%dT%H:%M:%SZ}: {command}"


def names_with_shapes(arrays: Iterable[MasterArray]) -> str:
    """Return the names and shapes of arrays as printable text."""
    described = (f"{a.name}({', '.join(f'{d}={n}' for d, n in zip(a.dimensions, a.shape, strict=True))})" for a in arrays)
    return printable(", ".join(described))
