"""Registry of the distribution types: modules here with a ``MAP``."""

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from aggarray.maps.base import MapType


@functools.cache
def map_types() -> Mapping[str, type[MapType]]:
    """Return the map classes by ``dist_type``.

    >>> sorted(map_types())
    ['b', 'c', 'u']
    """
    package = __name__.rpartition(".")[0]
    names = sorted(info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)]) if info.name != "registry")
    classes = (getattr(importlib.import_module(f"{package}.{name}"), "MAP", None) for name in names)
    return MappingProxyType({cls.letter: cls for cls in classes if isinstance(cls, type) and issubclass(cls, MapType)})
