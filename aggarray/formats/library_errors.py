"""Errors of libraries as `FormatError`: what is wrong, and what to do."""

from __future__ import annotations

import re

from aggarray.errors import FormatError

#: Errors of HDF5 that opens a truncated or damaged file, and of numcodecs for an unknown codec.
_OPENING = (
    r"Unable to (?:synchronously )?open file \((?P<why>truncated file: eof = (?P<size>\d+).*stored_eof = (?P<end>\d+)|.*)\)"
)
_CODEC = r"(?:codec not available: |An implementation for codec )'*(?P<name>[^' ]+)'*.*"


def error_text(error: BaseException) -> str:
    """Return the message of a library's exception as one line."""
    return library_fault(error).reason


def library_fault(error: BaseException, path: str | None = None, variable: str | None = None) -> FormatError:
    """Return the FormatError of a library's exception."""
    where = {"path": path, "variable": variable}
    if isinstance(error, UnicodeDecodeError):
        what = f"text that is not {error.encoding} (byte {error.object[error.start]:#04x})"
        return FormatError(what, **where, hint="set the attribute _Encoding")
    if isinstance(error, OSError) and error.strerror:
        return FormatError(str(error.strerror), **where)
    # A KeyError's text is its argument in quotes.
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    text = " ".join(text.split()) or type(error).__name__
    opening, codec = re.fullmatch(_OPENING, text), re.fullmatch(_CODEC, text)
    if opening is not None:
        size, end = opening["size"], opening["end"]
        what = (
            f"damaged: {opening['why']}"
            if size is None
            else f"truncated: its data end at byte {end}, the file has {size} bytes"
        )
        return FormatError(what, **where, hint="fetch or write it again")
    if codec is not None:
        return FormatError(f"no decoder for the codec {codec['name']!r}", **where, hint="install the package that provides it")
    return FormatError(f"cannot be read: {text}", **where)
