"""The exceptions of aggarray.

Each derives from `AggarrayError` and from the builtin that a caller would expect, so that both ``except aggarray.UnitsError``
and ``except ValueError`` work. A message is one line: what is wrong, where, what to do.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

#: Exceptions that libraries raise for a damaged file. AssertionError, NameError and the like are errors of aggarray.
LIBRARY_ERRORS = (
    *(OSError, RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, EOFError, BufferError),
    # SystemError: a codec of numcodecs that gets a negative size.
    *(struct.error, zlib.error, SystemError),
)

#: Names of query parameters that are, or sign, credentials.
_CREDENTIAL = (
    r"(?i:x-(?:amz|goog)-(?:signature|credential|security-token)|sig|signature|sas|awsaccesskeyid|googleaccessid"
    r"|key-pair-id|password|secret|jwt|(?:[a-z]+[_-]?)?token|api[_-]?key|auth|authorization)"
)
_PASSWORD = r"(?<=://)[^/\s\"'@:]*:[^/\s\"']*@"


def install_command(extra: str) -> str:
    """Return the command that installs an extra.

    >>> install_command("plot")
    "pip install 'aggarray[plot]'"
    """
    return f"pip install 'aggarray[{extra}]'"


def is_credential(parameter: str) -> bool:
    """Return whether a query parameter of this name signs an address.

    >>> is_credential("X-Amz-Signature"), is_credential("sig"), is_credential("format")
    (True, True, False)
    """
    return re.fullmatch(_CREDENTIAL, parameter) is not None


def without_credentials(text: str) -> str:
    """Return text without the passwords and signatures of addresses in it.

    >>> without_credentials("no such file: https://h/a.nc?v=1&sig=x%2Fy; check https://me:word@h")
    'no such file: https://h/a.nc?v=1&sig=...; check https://...@h'
    """
    if "=" in text:
        text = re.sub(rf"([?&]{_CREDENTIAL}=)[^&\s\"'<>(),;#]+", r"\1...", text)
    return re.sub(_PASSWORD, "...@", text) if "@" in text and "://" in text else text


def printable(text: Any) -> str:
    """Return text with unprintable characters escaped, without credentials.

    Control characters, changes of direction and lone surrogates are escaped.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    # promise: secrets-in-addresses
    found = without_credentials(str(text))
    if found.isprintable():
        return found
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in found)


def near_names(name: Any, names: Iterable[str]) -> str:
    """Return the question whether a similar name is meant, "" without any.

    >>> near_names("Latt", ["time", "lat", "lon"]), near_names("longitude", ["lat", "lon"]), near_names("x", ["lat"])
    ("did you mean 'lat'?", "did you mean 'lon'?", '')
    """
    from difflib import get_close_matches

    lower = {n.casefold(): n for n in names} if isinstance(name, str) else {}
    given = str(name).casefold()
    near = get_close_matches(given, lower, 1)
    near = near or [n for n in lower if min(len(n), len(given)) > 2 and (n.startswith(given) or given.startswith(n))][:2]
    return f"did you mean {' or '.join(repr(lower[n]) for n in near)}?" if near else ""


def counted(number: int, what: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "file"), counted(0, "file"), counted(2, "process")
    ('1 file', '0 files', '2 processes')
    """
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return names separated by commas, the first ones of many.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], 2)
    ('a, b, c', 'a, b and 1 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def names_hint(name: Any, names: Iterable[str], what: str) -> str:
    """Return a hint that lists names, and asks whether a similar one is meant.

    >>> names_hint("latt", ["time", "lat"], "the dimensions are")
    "did you mean 'lat'? the dimensions are: time, lat"
    """
    names = list(names)
    return f"{near_names(name, names)} {what}: {', '.join(names) or 'none'}".lstrip()


class AggarrayError(Exception):
    """Base of every error that aggarray raises deliberately.

    The arguments say what is wrong. ``path``, ``variable``: where; ``hint``: what to do; None where they do not apply. Code
    that knows more about an error than its raiser sets these attributes: the message is formatted here alone, as
    "what: where; hint".

    >>> print(FormatError("truncated", path="a.nc", variable="tas", hint="restore the file"))
    truncated: variable 'tas' in a.nc; restore the file
    >>> print(UnitsError("units do not convert: 'kg' to 'mm'", path="a.nc"))
    units do not convert: 'kg' to 'mm' (a.nc)
    >>> issubclass(NotFoundError, KeyError) and issubclass(MissingFileError, FileNotFoundError)
    True
    """

    path: str | None = None
    variable: str | None = None
    hint: str | None = None

    def __init__(self, *what: object, path: str | None = None, variable: str | None = None, hint: str | None = None) -> None:
        super().__init__(*what)
        for name, value in (("path", path), ("variable", variable), ("hint", hint)):
            if value is not None:
                setattr(self, name, value)

    def __repr__(self) -> str:
        return printable(super().__repr__())

    @property
    def what(self) -> str:
        """What is wrong, without where and hint."""
        return " ".join(str(arg) for arg in self.args)

    @property
    def reason(self) -> str:
        """What is wrong and what to do, without where."""
        return printable(self.what if self.hint is None else f"{self.what}; {self.hint}")

    @property
    def located(self) -> str:
        """What is wrong and where, without what to do."""
        what = self.what
        unnamed = self.variable is None or (isinstance(self, NotFoundError) and repr(self.variable) in what)
        variable = None if unnamed else f"variable {self.variable!r}"
        where = " in ".join(name for name in (variable, self.path) if name is not None)
        if where:
            what = f"{what} ({where})" if ": " in what or "; " in what else f"{what}: {where}"
        return what

    def __str__(self) -> str:
        # KeyError quotes its message and OSError formats errno; names from files may hold control characters.
        # promise: escape-errors
        return printable(self.located if self.hint is None else f"{self.located}; {self.hint}")


class FormatError(AggarrayError, OSError):
    """A file that cannot be read: damaged, truncated, or of unknown format."""


class MissingFileError(FormatError, FileNotFoundError):
    """A data file that does not exist."""


class IndexFileError(AggarrayError, OSError):
    """An index file that cannot be read, written or trusted."""


class ForbiddenPathError(IndexFileError):
    """A path or address outside those that may be read (``roots``)."""


class ChangedFileError(IndexFileError, FormatError):
    """A data file that has changed since it was scanned or indexed."""


class UnitsError(AggarrayError, ValueError):
    """Units or calendars that do not parse or do not convert into each other."""


class AggregationError(AggarrayError, ValueError):
    """Arrays that do not fit together, or rules that contradict each other."""


class ProtocolError(AggarrayError, ValueError):
    """A distribution or export that violates the DAP; ``faults``: a list."""

    def __init__(self, message: str = "", faults: Iterable[str] = (), **where: str | None) -> None:
        super().__init__(message, **where)
        self.faults = tuple(faults) or (message,)


class AccessError(AggarrayError, BufferError, ValueError):
    """The former name of `MemoryAccessError`, which it still catches."""


class MemoryAccessError(AccessError):
    """Memory that is not available as requested.

    It would need a copy, is not writable or not immutable, or the protocol cannot express it.
    """


class ExchangeError(AggarrayError, ValueError):
    """A movement of data between processes that cannot be carried out."""


class SelectionError(AggarrayError, IndexError):
    """A key that does not fit the array it is applied to."""


class NotFoundError(AggarrayError, KeyError):
    """A name or label that does not exist; the message lists those that do."""
