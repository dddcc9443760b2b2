"""Index files: saved aggregations, opened without reading a data file.

An index is an aggregation file of CF-1.13 or CFA-0.4, with the same aggregation, without loss, in its group ``aggarray``
(`store`, `encoder`, `decoder`, `records`). `saving` replaces the file atomically, `loading` opens it; `recognition` finds the
convention of a file, and `foreign` reads the indexes of other programs.
"""

from __future__ import annotations

from aggarray.dataclass import dataclass
from aggarray.index.uris import NOWHERE, PathMap
from aggarray.storage.access import ANYWHERE, Access


@dataclass(frozen=True, slots=True)
class Opening:
    """Options of opening an index: readable files and relocated prefixes."""

    access: Access = ANYWHERE
    path_map: PathMap = NOWHERE
