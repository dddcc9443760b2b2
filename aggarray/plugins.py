"""Plug-ins: objects of the modules of a folder, or of other packages.

There is no list to edit: a module of the folder without a leading underscore adds an object, and so does an entry point.
"""

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def own_objects(package: ModuleType, name: str) -> Iterator[Any]:
    """Yield the object called ``name`` of each module that has one, in order.

    >>> import aggarray.codecs
    >>> [codec.name for codec in own_objects(aggarray.codecs, "CODEC")][:2]
    ['adler32', 'bitshuffle']
    """
    import pkgutil

    for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_")):
        plugin = getattr(importlib.import_module(f"{package.__name__}.{module}"), name, None)
        if plugin is not None:
            yield plugin


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
