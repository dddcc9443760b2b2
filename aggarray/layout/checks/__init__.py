"""Checks of the layout of an archive: one module each.

A check is the object ``CHECK`` of a module of this folder. Another package registers checks under the entry point group
``aggarray.layout_checks``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping

from aggarray.layout.base import Check
from aggarray.plugins import foreign_objects, own_objects


@functools.cache
def checks() -> Mapping[str, Check]:
    """Return the checks by name: those of this folder, then those of packages.

    >>> list(checks())[:3]
    ['attributes', 'bounds', 'chunk_index']
    """
    found = [*own_objects(sys.modules[__name__], "CHECK"), *foreign_objects("aggarray.layout_checks")]
    return {check.name: check for check in found if isinstance(check, Check)}
