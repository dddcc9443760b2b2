"""Which exceptions does aggarray raise on purpose?

Every deliberate error derives from `AggarrayError` and from the builtin that a caller would expect, so that both
``except aggarray.UnitsError`` and ``except ValueError`` work. Messages are one line that names the file, the variable,
the value and the way out.
"""

from collections.abc import Iterable
from typing import Any


def printable(text: Any) -> str:
    """Return text in which whatever does not print is escaped: control characters, changes of direction, lone surrogates.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    found = str(text)
    if found.isprintable():
        return found
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in found)


class AggarrayError(Exception):
    """Base of every error that aggarray raises on purpose.

    >>> issubclass(NotFoundError, KeyError) and issubclass(MissingFileError, FileNotFoundError)
    True
    """

    def __str__(self) -> str:
        # KeyError quotes its message and OSError formats errno: one plain line serves everybody.
        # Names from files say nothing to a terminal.
        # promise: escape-errors
        return printable(" ".join(str(arg) for arg in self.args))


class FormatError(AggarrayError, OSError):
    """A data file that cannot be read: not a data file, truncated, damaged or of an unknown kind."""


class MissingFileError(FormatError, FileNotFoundError):
    """A data file that is not there."""


class IndexFileError(AggarrayError, OSError):
    """An index file that cannot be read, written or trusted."""


class ChangedFileError(IndexFileError, FormatError):
    """A data file that is not what it was when it was scanned, or when an index was made of it."""


class UnitsError(AggarrayError, ValueError):
    """Units or calendars that do not parse or do not convert into each other."""


class AggregationError(AggarrayError, ValueError):
    """Arrays that do not fit together, or rules that contradict each other."""


class ProtocolError(AggarrayError, ValueError):
    """A distribution or an export that breaks the Distributed Array Protocol; ``faults``: what is wrong, a line each."""

    def __init__(self, message: str = "", faults: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.faults = tuple(faults) or (message,)


class AccessError(AggarrayError, BufferError, ValueError):
    """Memory that cannot be had as it is wanted: without a copy, writable, never changing, or through a protocol."""


class ExchangeError(AggarrayError, ValueError):
    """A movement of data between processes that cannot be carried out."""


class SelectionError(AggarrayError, IndexError):
    """A key that does not fit the array it is applied to."""


class NotFoundError(AggarrayError, KeyError):
    """A name or label that is not there; the message lists what is."""
