"""How do stored characters and bytes become text? Decoded as the variable says, and without what only fills them up."""

import numpy as np


def characters_to_text(characters: np.ndarray, encoding: str = "utf-8") -> np.ndarray:
    """Join the last dimension of a character array into text, trailing NULs and blanks dropped (CF section 2.2).

    ``characters``: bytes of length one, shape (..., length), or () for a single character.
    Returns StringDType of shape (...). Raises UnicodeError where the bytes are not in ``encoding``, or that is none.
    """
    if characters.ndim == 0:
        characters = characters[np.newaxis]
    length = characters.shape[-1]
    lead = characters.shape[:-1]
    if length == 0:
        return np.full(lead, "", dtype=np.dtypes.StringDType())
    joined = np.ascontiguousarray(characters).astype("S1", copy=False).view(f"S{length}").reshape(lead)
    return bytes_to_text(joined, encoding)


def bytes_to_text(values: np.ndarray, encoding: str = "utf-8") -> np.ndarray:
    """Decode bytes or str into StringDType of the same shape; UnicodeError as in `characters_to_text`.

    Trailing NULs and blanks of bytes of a fixed length only fill it, and are dropped; other text is kept as it is.
    """
    fixed = values.dtype.kind == "S"
    if fixed and values.dtype.itemsize > 1:
        # As text, NumPy would drop trailing NULs already, which may be half a letter.
        values = np.ascontiguousarray(values).view(f"V{values.dtype.itemsize}").reshape(values.shape)
    try:
        flat = [v.decode(encoding) if isinstance(v, bytes) else str(v) for v in values.ravel().tolist()]
    except LookupError as error:
        raise UnicodeError(f"{error}; set the attribute _Encoding to one such as utf-8 or iso-8859-1") from error
    if fixed:
        flat = [v.rstrip("\x00 ") for v in flat]
    return np.array(flat, dtype=np.dtypes.StringDType()).reshape(values.shape)
