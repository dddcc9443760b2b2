"""Two-dimensional variables read as flat values under a name of their own.

All rows of an incomplete multidimensional array (CF section 9.3.2) have the length of the longest row in their file. Flat
values let files with rows of different lengths be concatenated; the samples of each row are selected from the flat values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from aggarray.dataclass import replace
from aggarray.formats.base import Box, Handle
from aggarray.partition.chunk_index import ChunkIndex

# A path has no empty part, so no variable of a file has such a name.
_FLAT = r"(?s)(?P<name>.*)//rows of (?P<width>\d+)"


def flat_name(variable: str, width: int) -> str:
    """Return the name of the flat values of rows of ``width``.

    >>> flat_name("temperature", 20)
    'temperature//rows of 20'
    """
    return f"{variable}//rows of {width}"


def is_flat(name: str) -> bool:
    """Return whether a name refers to flat values."""
    return stored_name(name) != name


def stored_name(name: str) -> str:
    """Return the name of the variable in the file.

    >>> stored_name("temperature//rows of 20"), stored_name("temperature")
    ('temperature', 'temperature')
    """
    return _parts(name)[0] if "//" in name and re.fullmatch(_FLAT, name) else name


def flat_handle(handle: Handle, name: str) -> Handle:
    """Return a `Flat` for a name of flat values, else the handle itself."""
    return Flat(handle) if is_flat(name) else handle


class Flat:
    """Open file whose variables are addressed by names of flat values."""

    def __init__(self, handle: Handle) -> None:
        self._handle, self.lasting = handle, handle.lasting

    def read(self, variable: str, box: Box) -> np.ndarray:
        """Return a box of the flat values; complete rows are read."""
        name, width = _parts(variable)
        (samples,) = box
        if samples.start >= samples.stop:
            return self._handle.read(name, (slice(0, 0, 1), slice(0, width, 1))).reshape(-1)
        first, last = samples.start // width, -(-samples.stop // width)
        rows = self._handle.read(name, (slice(first, last, 1), slice(0, width, 1))).reshape(-1)
        return rows[samples.start - first * width : samples.stop - first * width : samples.step or 1]

    def mapped(self, variable: str) -> np.ndarray | None:
        """Return a view of the mapped file, or None if there is none."""
        rows = self._handle.mapped(_parts(variable)[0])
        return rows.reshape(-1) if rows is not None and rows.flags.c_contiguous else None

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return the chunk index, None if a chunk holds parts of rows."""
        name, width = _parts(variable)
        # The method is optional in handles of other packages.
        table: ChunkIndex | None = getattr(self._handle, "chunks", lambda name: None)(name)
        if table is None or table.chunk[1:] != (width,) or table.shape[1:] != (width,):
            return None
        return replace(table, shape=(table.shape[0] * width,), chunk=(table.chunk[0] * width,))

    def external_files(self, variable: str) -> Iterable[str]:
        """Return the paths of the other files that hold values."""
        paths: Iterable[str] = getattr(self._handle, "external_files", lambda variable: ())(_parts(variable)[0])
        return paths

    def close(self) -> None:
        """Close the file."""
        self._handle.close()


def _parts(name: str) -> tuple[str, int]:
    match = re.fullmatch(_FLAT, name)
    if match is None:
        raise KeyError(name)
    return match["name"], int(match["width"])
