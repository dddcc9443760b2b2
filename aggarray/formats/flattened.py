"""How are the values of a variable of two dimensions read as one row after the other? Under a name of its own.

The rows of an incomplete multidimensional array (CF section 9.3.2) are as long as the longest of their file; what belongs to a
row is picked out of the flat values, and files of rows of different lengths follow each other.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from aggarray.formats.base import Box, ChunkIndex, Handle

# No part of a path is empty: no variable has such a name.
_FLAT = re.compile(r"(?P<name>.*)//rows of (?P<width>\d+)", re.DOTALL)


def flat_name(variable: str, width: int) -> str:
    """Return the name of the flat values of a variable of shape (rows, ``width``).

    >>> flat_name("temperature", 20)
    'temperature//rows of 20'
    """
    return f"{variable}//rows of {width}"


def is_flat(name: str) -> bool:
    """Tell whether a name is one of flat values."""
    return "//" in name and _FLAT.fullmatch(name) is not None


def stored_name(name: str) -> str:
    """Return the name of the variable that a file has.

    >>> stored_name("temperature//rows of 20"), stored_name("temperature")
    ('temperature', 'temperature')
    """
    found = _FLAT.fullmatch(name) if "//" in name else None
    return name if found is None else found["name"]


def understanding(handle: Handle, name: str) -> Handle:
    """Return a handle that understands a name, be it one of flat values."""
    return Flat(handle) if is_flat(name) else handle


class Flat:
    """An open file whose variables are asked for by names of flat values."""

    def __init__(self, handle: Handle) -> None:
        self._handle, self.lasting = handle, handle.lasting

    def read(self, variable: str, box: Box) -> np.ndarray:
        """Return a box of the flat values; the rows that hold it are read whole."""
        name, width = _parts(variable)
        (wanted,) = box
        if wanted.start >= wanted.stop:
            return self._handle.read(name, (slice(0, 0, 1), slice(0, width, 1))).reshape(-1)
        first, last = wanted.start // width, -(-wanted.stop // width)
        rows = self._handle.read(name, (slice(first, last, 1), slice(0, width, 1))).reshape(-1)
        return rows[wanted.start - first * width : wanted.stop - first * width : wanted.step or 1]

    def mapped(self, variable: str) -> np.ndarray | None:
        """Return the flat values as a view of the mapped file, or None where it has none."""
        found = self._handle.mapped(_parts(variable)[0])
        return found.reshape(-1) if found is not None and found.flags.c_contiguous else None

    def chunks(self, variable: str) -> ChunkIndex | None:
        """Return where the flat values are stored, None where chunks do not hold whole rows."""
        name, width = _parts(variable)
        # Handles of other packages may not know.
        table: ChunkIndex | None = getattr(self._handle, "chunks", lambda name: None)(name)
        if table is None or table.chunk[1:] != (width,) or table.shape[1:] != (width,):
            return None
        return replace(table, shape=(table.shape[0] * width,), chunk=(table.chunk[0] * width,))

    def elsewhere(self, variable: str) -> Iterable[str]:
        """Return the paths of other files that hold values."""
        found: Iterable[str] = getattr(self._handle, "elsewhere", lambda variable: ())(_parts(variable)[0])
        return found

    def close(self) -> None:
        """Close the file."""
        self._handle.close()


def _parts(name: str) -> tuple[str, int]:
    found = _FLAT.fullmatch(name)
    if found is None:
        raise KeyError(name)
    return found["name"], int(found["width"])
