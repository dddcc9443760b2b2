"""Reading, atomic writing, locking and caching of files and objects."""

from __future__ import annotations

import os
from collections.abc import Sequence

from aggarray.storage.urls import RELOCATE


def relocated(address: str) -> str:
    """Return a stored or received address, relocated for this process."""
    if RELOCATE not in os.environ:
        return address
    from aggarray.storage.relocation import relocate

    return relocate(address)


def relocated_roots(roots: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return readable locations, and those that their files are relocated to."""
    if roots is None or RELOCATE not in os.environ:
        return roots
    from aggarray.storage.relocation import relocate_roots

    return relocate_roots(roots)


def relocated_all(addresses: Sequence[str]) -> Sequence[str]:
    """Return addresses, relocated for this process."""
    return addresses if RELOCATE not in os.environ else tuple(map(relocated, addresses))
