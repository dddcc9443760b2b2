"""How do stored characters and bytes become text? Decoded as the variable says, and without what only fills them up.

A text that is not in its encoding is read as Latin-1, in which every byte is a character: no byte is lost, and none of the
surrogates appears that NumPy's text, netCDF and JSON cannot hold.
"""

import logging
from functools import lru_cache
from typing import Any

import numpy as np

from aggarray.cf.encoding import decode_text, plain_text
from aggarray.errors import printable

#: What Python decodes, and no file means: names of hosts, source code, nothing.
_NO_TEXT = ("idna", "punycode", "unicode_escape", "unicode-escape", "raw_unicode_escape", "raw-unicode-escape", "undefined")


@lru_cache(maxsize=64)
def known_encoding(stated: Any) -> str:
    """Return the encoding that an attribute ``_Encoding`` states, None = utf-8; UnicodeError for one that does not exist."""
    if not isinstance(stated, str) or not stated.strip():
        return "utf-8"
    name = stated.strip().lower()
    if name in ("none", "bytes"):
        # The encoding is unknown, says netCDF.
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
def note_latin(place: str, encoding: str) -> None:
    """Log, once for a place, that text is read as Latin-1."""
    text = "%s: text that is not %s is read as Latin-1; set the attribute _Encoding if it is something else"
    logging.getLogger("aggarray").warning(text, printable(place), encoding)


def characters_to_text(characters: np.ndarray, encoding: str = "utf-8", place: str = "") -> np.ndarray:
    """Join the last dimension of a character array into text, trailing NULs and blanks dropped (CF section 2.2).

    ``characters``: bytes of length one, shape (..., length), or () for a single character. ``place``: for the log.
    Returns StringDType of shape (...).
    """
    if characters.ndim == 0:
        characters = characters[np.newaxis]
    length = characters.shape[-1]
    lead = characters.shape[:-1]
    if length == 0:
        return np.full(lead, "", dtype=np.dtypes.StringDType())
    joined = np.ascontiguousarray(characters).astype("S1", copy=False).view(f"S{length}").reshape(lead)
    return bytes_to_text(joined, encoding, place)


def bytes_to_text(values: np.ndarray, encoding: str = "utf-8", place: str = "") -> np.ndarray:
    """Decode bytes or str into StringDType of the same shape.

    Trailing NULs and blanks of bytes of a fixed length only fill it, and are dropped; other text is kept as it is.
    """
    fixed = values.dtype.kind == "S"
    if fixed and values.dtype.itemsize > 1:
        # As text, NumPy would drop trailing NULs already, which may be half a letter.
        values = np.ascontiguousarray(values).view(f"V{values.dtype.itemsize}").reshape(values.shape)
    items = values.ravel().tolist()
    try:
        return _joined([v.decode(encoding) if isinstance(v, bytes) else str(v) for v in items], fixed, values.shape)
    except UnicodeError:
        if place:
            note_latin(place, encoding)
        texts = [decode_text(v, encoding) if isinstance(v, bytes) else plain_text(str(v)) for v in items]
        return _joined(texts, fixed, values.shape)


def _joined(texts: list[str], fixed: bool, shape: tuple[int, ...]) -> np.ndarray:
    texts = [text.rstrip("\x00 ") for text in texts] if fixed else texts
    return np.array(texts, dtype=np.dtypes.StringDType()).reshape(shape)
