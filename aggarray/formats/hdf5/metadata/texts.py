"""Texts of complete datasets in columns, without an object per text."""

from __future__ import annotations

import math

import numpy as np

from aggarray.cf.text import known_encoding
from aggarray.formats.hdf5.metadata.attributes import shown_attributes
from aggarray.formats.hdf5.metadata.data import Data
from aggarray.formats.hdf5.metadata.groups import attributes_at
from aggarray.formats.hdf5.metadata.headers import Header
from aggarray.formats.hdf5.metadata.lookup import H5File
from aggarray.formats.hdf5.metadata.types import CHARACTERS, TEXTS
from aggarray.formats.hdf5.metadata.values import elements_of, is_bounded, stored_of
from aggarray.memory.texts import Texts


def text_column(file: H5File, variable: str, shape: tuple[int, ...]) -> Texts | None:
    """Return all texts in C order, None if `values_of` or HDF5 reads them.

    ``shape``: of the texts. Texts of other encodings than UTF-8 and in large chunks are read otherwise. Raises one of
    `data.UNREADABLE` as `H5File` does.
    """
    header = file.variable(variable)
    datatype, space, _ = header.dataset
    attrs = shown_attributes(attributes_at(file.data, header), file.data)
    if datatype.category not in (TEXTS, CHARACTERS) or space.empty or known_encoding(attrs.get("_Encoding")) != "utf-8":
        return None
    if not is_bounded(file.data, header):
        return None
    if datatype.category == TEXTS:
        from aggarray.formats.hdf5.metadata.heap_texts import heap_texts

        texts = heap_texts(file.data, elements_of(file.data, header).ravel()) if space.shape == shape else None
    else:
        texts = _fixed_texts(file.data, header, shape)
    return None if texts is None else _valid(texts, datatype.category == TEXTS)


def _fixed_texts(data: Data, header: Header, shape: tuple[int, ...]) -> Texts | None:
    """Return fixed-length texts, or characters along the last dimension."""
    datatype, space, _ = header.dataset
    joined = datatype.size == 1 and len(space.shape) == len(shape) + 1
    if (space.shape[:-1] if joined else space.shape) != shape or datatype.dtype is None:
        return None
    if datatype.terminated and datatype.size > 1:
        return None  # anything may follow the NUL
    count, width = math.prod(shape), space.shape[-1] if joined else datatype.size
    buffer = np.ascontiguousarray(stored_of(data, header, datatype.dtype)).reshape(-1).view(np.uint8)
    starts, lengths = np.arange(count) * width, np.full(count, width)
    rows = np.flatnonzero(lengths)
    while len(rows):
        # Trailing NULs and blanks are padding.
        last = buffer[starts[rows] + lengths[rows] - 1]
        rows = rows[(last == 0) | (last == ord(" "))]
        lengths[rows] -= 1
        rows = rows[lengths[rows] > 0]
    return Texts(buffer, lengths, starts)


def _valid(texts: Texts, cut: bool) -> Texts | None:
    """Return texts, None if one is not UTF-8; ``cut``: a NUL ends a text."""
    if texts.is_plain():
        return texts
    lengths = texts.lengths.copy()
    rows = np.flatnonzero(texts.fingerprints().unusual)
    view = texts.buffer.data
    for row, start, length in zip(rows.tolist(), texts.starts[rows].tolist(), lengths[rows].tolist(), strict=True):
        try:
            text = str(view[start : start + length], "utf-8")
        except UnicodeDecodeError:
            return None
        if cut and "\0" in text:
            lengths[row] = len(text.partition("\0")[0].encode())
    return texts if np.array_equal(lengths, texts.lengths) else Texts(texts.buffer, lengths, texts.starts)
