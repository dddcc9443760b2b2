"""Plug-ins: objects of the modules of a folder, or of other packages.

There is no list to edit: a module of the folder without a leading underscore adds an object, and so does an entry point.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any


def own_objects(package: ModuleType, name: str) -> Iterator[Any]:
    """Yield the object called ``name`` of each module that has one, in order.

    >>> import aggarray.codecs
    >>> [codec.name for codec in own_objects(aggarray.codecs, "CODEC")][:2]
    ['adler32', 'bitshuffle']
    """
    for module in module_names(package.__path__):
        plugin = getattr(importlib.import_module(f"{package.__name__}.{module}"), name, None)
        if plugin is not None:
            yield plugin


def module_names(paths: Iterable[str]) -> Sequence[str]:
    """Return the sorted names of the public modules in folders of a package."""
    try:
        entries = [entry.partition(".") for path in paths for entry in os.listdir(path)]
        names = {name for name, _, suffix in entries if suffix in ("", "py", "pyc")}
    except OSError:  # in an archive
        import pkgutil

        names = {info.name for info in pkgutil.iter_modules(paths)}
    return sorted(name for name in names if not name.startswith("_"))


def foreign_objects(group: str) -> Iterator[Any]:
    """Yield the objects of other packages in an entry point group.

    Warns (RuntimeWarning) of those that do not load. The search takes as long as reading a small file.
    """
    from importlib.metadata import entry_points

    for entry in entry_points(group=group):
        try:
            plugin = entry.load()
        except (ImportError, AttributeError) as error:
            what = group.rpartition(".")[2].removesuffix("s")
            import warnings

            warnings.warn(f"{what} {entry.name} ({entry.value}) does not load: {error}", RuntimeWarning, stacklevel=2)
            continue
        yield plugin
