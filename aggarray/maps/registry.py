"""Which types of distribution are there? Those of the modules of this folder: there is no list to edit."""

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from aggarray.maps.base import MapType


@functools.cache
def map_types() -> Mapping[str, type[MapType]]:
    """Return the classes of maps by ``dist_type``.

    >>> sorted(kinds())
    ['b', 'c', 'u']
    """
    package = __name__.rpartition(".")[0]
    names = sorted(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)]) if info.name != "registry")
    found = (getattr(importlib.import_module(f"{package}.{name}"), "MAP", None) for name in names)
    return MappingProxyType({one.letter: one for one in found if isinstance(one, type) and issubclass(one, MapType)})
