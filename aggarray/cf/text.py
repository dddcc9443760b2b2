"""Decoding of stored characters and bytes into text, without padding.

Text that is invalid in its encoding is decoded as Latin-1, which maps each byte to a character. This keeps all bytes and gives
no surrogates, which NumPy's text, netCDF and JSON cannot hold.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.cf.encoding import decode_text, plain_text
from aggarray.errors import printable

#: Encodings of Python that are not encodings of text in files.
_NO_TEXT = ("idna", "punycode", "unicode_escape", "unicode-escape", "raw_unicode_escape", "raw-unicode-escape", "undefined")


@lru_cache(maxsize=64)
def known_encoding(stated: Any) -> str:
    """Return the stated encoding, or utf-8; raise UnicodeError if unknown."""
    if not isinstance(stated, str) or not stated.strip():
        return "utf-8"
    name = stated.strip().lower()
    if name in ("none", "bytes"):
        # In netCDF these mean that the encoding is unknown.
        return "latin-1"
    try:
        if name in _NO_TEXT:
            raise LookupError(f"unknown encoding: {stated!r}")
        b"a".decode(name)
    except UnicodeDecodeError:
        pass  # an encoding of wider characters
    except (LookupError, ValueError) as error:
        raise UnicodeError(f"{error}; set the attribute _Encoding to one such as utf-8 or iso-8859-1") from error
    return "utf-8" if name in ("ascii", "us-ascii") else name


@lru_cache(maxsize=1024)
def log_latin_1(source: str, encoding: str) -> None:
    """Log once per source, a file or variable, that text is read as Latin-1."""
    import logging

    text = "%s: text that is not %s is read as Latin-1; set the attribute _Encoding if it is another encoding"
    logging.getLogger("aggarray").warning(text, printable(source), encoding)


def characters_to_text(characters: np.ndarray, encoding: str = "utf-8", source: str = "") -> np.ndarray:
    """Join the last dimension of characters into text (CF section 2.2).

    Trailing NULs and blanks are removed. ``characters``: bytes of length one, shape (..., length), or () for a single
    character. ``source``: file or variable in the log. Returns StringDType of shape (...).
    """
    if characters.ndim == 0:
        characters = characters[np.newaxis]
    length = characters.shape[-1]
    lead = characters.shape[:-1]
    if length == 0:
        return np.full(lead, "", dtype=np.dtypes.StringDType())
    joined = np.ascontiguousarray(characters).astype("S1", copy=False).view(f"S{length}").reshape(lead)
    return bytes_to_text(joined, encoding, source)


def bytes_to_text(values: np.ndarray, encoding: str = "utf-8", source: str = "") -> np.ndarray:
    """Decode bytes or str into StringDType of the same shape.

    Trailing NULs and blanks of fixed-length bytes are padding and are dropped. Other text is unchanged.
    """
    fixed = values.dtype.kind == "S"
    if fixed and values.dtype.itemsize > 1:
        # NumPy drops trailing NULs of bytes, which may be part of a character.
        values = np.ascontiguousarray(values).view(f"V{values.dtype.itemsize}").reshape(values.shape)
    items = values.ravel().tolist()
    try:
        return _joined([v.decode(encoding) if isinstance(v, bytes) else str(v) for v in items], fixed, values.shape)
    except UnicodeError:
        if source:
            log_latin_1(source, encoding)
        texts = [decode_text(v, encoding) if isinstance(v, bytes) else plain_text(str(v)) for v in items]
        return _joined(texts, fixed, values.shape)


def _joined(texts: list[str], fixed: bool, shape: tuple[int, ...]) -> np.ndarray:
    texts = [text.rstrip("\x00 ") for text in texts] if fixed else texts
    return np.array(texts, dtype=np.dtypes.StringDType()).reshape(shape)
