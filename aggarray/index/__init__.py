"""Index files: saved aggregations, opened without reading a data file.

An index is an aggregation file of CF-1.13 or CFA-0.4, with the same aggregation, without loss, in its group ``aggarray``
(`store`, `encoder`, `decoder`, `records`). `saving` replaces the file atomically, `loading` opens it; `recognition` finds the
convention of a file, and `foreign` reads the indexes of other programs.
"""

from __future__ import annotations

from aggarray.dataclass import dataclass
from aggarray.index.uris import NOWHERE, PathMap
from aggarray.storage.access import ANYWHERE, Access

#: The group of an index file that holds the aggregation.
GROUP = "aggarray"
#: Advice in the error for a damaged index.
SAVE_AGAIN = "save it again from the data files"
#: Bytes of the superblock of HDF5 up to the end-of-file address.
HEAD = 48
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
#: Positions in the superblock, by its version: sizes of offsets and lengths, base address, end of file.
_SUPERBLOCK = {0: (13, 24, 40), 2: (9, 12, 28), 3: (9, 12, 28)}


@dataclass(frozen=True, slots=True)
class Opening:
    """Options of opening an index: readable files and relocated prefixes."""

    access: Access = ANYWHERE
    path_map: PathMap = NOWHERE


def end_of_hdf5(head: bytes) -> int | None:
    """Return the end of file that the superblock at the head of a file states.

    None for other files, and for files with a user block.
    """
    known = _SUPERBLOCK.get(head[8]) if len(head) >= HEAD and head.startswith(_SIGNATURE) else None
    if known is None:
        return None
    sizes, base, end = known
    if head[sizes : sizes + 2] != b"\x08\x08" or any(head[base : base + 8]):
        return None
    return int.from_bytes(head[end : end + 8], "little")
