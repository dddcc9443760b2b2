"""Codecs that decode the stored bytes of a chunk.

A file states an encoding as filters, in the order of encoding. They are decoded in reverse order. A codec is a module of
this folder with a ``CODEC`` object of the same name, imported with the first chunk that needs it, or an object that another
package registers under the entry point ``aggarray.codecs``.
Codecs release the interpreter's lock while they process many bytes. Where a library holds the lock, the codec calls it
piece by piece.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.codecs.base import Codec, Filter, Parameters
from aggarray.dataclass import dataclass

if TYPE_CHECKING:
    from aggarray.codecs._blosc_frame import Frame

#: Bytes from which a chunk is unshuffled in parts.
_LARGE_CHUNK = 1 << 23
#: Compressors expand incompressible data to at most ``_TIMES`` times its size plus ``_SLACK`` bytes.
_TIMES, _SLACK = 8, 1 << 16

__all__ = ["Codec", "Filter", "Parameters", "before_shuffle", "check_size", "codecs", "decode", "decode_all", "known"]
__all__ += ["decode_at_most", "most_decoded"]


def codecs() -> Mapping[str, Codec]:
    """Return every codec by name; packages add codecs but replace none.

    >>> {"shuffle", "deflate", "fletcher32"} <= set(codecs())
    True
    """
    return MappingProxyType({**_foreign_codecs(), **_own_codecs()})


@functools.cache
def _own_codecs() -> dict[str, Codec]:
    from aggarray.plugins import own_objects

    return _by_name(own_objects(sys.modules[__name__], "CODEC"))


@functools.cache
def _foreign_codecs() -> dict[str, Codec]:
    from aggarray.plugins import foreign_objects

    return _by_name(foreign_objects("aggarray.codecs"))


def _by_name(candidates: Iterable[Any]) -> dict[str, Codec]:
    """Return the first codec of each name, skipping other objects."""
    named: dict[str, Codec] = {}
    for candidate in candidates:
        if isinstance(candidate, Codec):
            named.setdefault(candidate.name, candidate)
    return named


def _codec(name: str) -> Codec | None:
    """Return a codec by name, None if it is not installed."""
    own: Codec | None = _own_codec(name)
    return _foreign_codecs().get(name) if own is None else own


def _own_codec(name: str) -> Any:
    """Return the codec of the module of a name, which may be any text."""
    if not (name.isidentifier() and name.isascii()) or name.startswith("_"):
        return None
    module = f"{__name__}.{name}"
    try:
        return getattr(importlib.import_module(module), "CODEC", None)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return None


def known(filters: Sequence[Filter]) -> bool:
    """Return whether all filters are installed and their parameters valid.

    >>> known((Filter("shuffle", (4,)), Filter("deflate"))), known((Filter("secret"),)), known((Filter("shuffle", (0,)),))
    (True, False, False)
    """
    return _known(tuple(filters))


# Looking for a library costs more than reading a small chunk.
@functools.lru_cache(maxsize=256)
def _known(filters: tuple[Filter, ...]) -> bool:
    return all((codec := _codec(f.name)) is not None and codec.usable(f.parameters) for f in filters)


def before_shuffle(filters: tuple[Filter, ...]) -> tuple[Filter, ...] | None:
    """Return the filters after shuffle if it is the first, else None.

    Decoding only these filters gives the byte planes of a shuffled chunk, from which single elements can be picked. Bit 0 of
    a chunk's filter mask refers to shuffle: shift the mask right by one for the filters returned.

    >>> before_shuffle((Filter("shuffle", (4,)), Filter("deflate")))
    (Filter(name='deflate', parameters=()),)
    """
    return filters[1:] if filters and filters[0].name == "shuffle" else None


def decode(filters: Sequence[Filter], data: Any, size: int, mask: int = 0, out: np.ndarray | None = None) -> np.ndarray:
    """Return the decoded bytes of a chunk: uint8, of shape (size,).

    ``filters``: in the order of encoding. ``mask``: filter mask of HDF5; bit i is set if filter i was skipped when the chunk
    was written. ``data``: the stored bytes, a contiguous buffer. ``out``: a writable, contiguous uint8 array of ``size``
    bytes that is filled and returned. Without ``out`` the result may share the memory of ``data`` and be read-only.
    Raises ValueError, which names the codec, for wrong sizes, checksum mismatches and damaged data. The content of ``out`` is
    then undefined.

    >>> import zlib
    >>> decode((Filter("shuffle", (2,)), Filter("deflate")), zlib.compress(bytes([1, 2, 3, 0, 0, 0])), 6).view("<i2").tolist()
    [1, 2, 3]
    """
    return _run_steps(_steps(tuple(filters), int(size), int(mask)), data, int(size), out)


def decode_at_most(filters: Sequence[Filter], data: Any, most: int, mask: int = 0) -> np.ndarray:
    """Decode a chunk of unknown size to at most ``most`` bytes, as `decode`.

    >>> import zlib
    >>> decode_at_most((Filter("deflate"),), zlib.compress(bytes(7)), 1000).size
    7
    """
    return _run_steps(_steps(tuple(filters), int(most), int(mask), False), data, int(most), None, exact=False)


def _run_steps(steps: tuple[_Step, ...], data: Any, expected: int, out: np.ndarray | None, exact: bool = True) -> np.ndarray:
    """Decode the filters of ``steps`` in order.

    The last codec may fill ``out``, which is returned. ``expected``: number of decoded bytes, ``exact`` or at most.
    """
    current = np.frombuffer(data, np.uint8)
    for step in steps:
        size = step.size
        # promise: codec-output-bound
        if step.ratio is not None and size > (room := step.ratio * current.size + _SLACK):
            if step.exact:
                raise ValueError(f"{step.codec.name}: {current.size} bytes cannot decode to {size}")
            size = room
        try:
            current = step.codec.decode(current, size, step.parameters, out if step.last else None)
        except (ValueError, RuntimeError) as error:
            raise ValueError(f"{step.codec.name}: {error}") from error
        if current.size != size and (step.exact or current.size > size):
            raise ValueError(f"{step.codec.name}: {current.size} bytes decoded, {size} expected")
    if current.size != expected and (exact or current.size > expected):
        raise ValueError(f"{current.size} bytes stored, {'' if exact else 'at most '}{expected} expected")
    if out is None or current is out:
        return current
    out[...] = current
    return out


def most_decoded(filters: Sequence[Filter], stored: int, mask: int = 0) -> int | None:
    """Return how many bytes ``stored`` bytes decode to at most, None: unknown.

    >>> most_decoded((Filter("shuffle", (4,)), Filter("deflate")), 10), most_decoded((), 10)
    (75856, 10)
    """
    for f in reversed([f for i, f in enumerate(filters) if not mask >> i & 1]):
        codec = _codec(f.name)
        if codec is None:
            return None
        if codec.grown(stored, f.parameters) is None:
            ratio = getattr(codec, "ratio", None)
            if ratio is None:
                return None
            stored = ratio * stored + _SLACK
    return stored


def check_size(filters: Sequence[Filter], stored: int, size: int, mask: int = 0) -> None:
    """Before allocation, raise ValueError if bytes cannot decode to ``size``."""
    most = most_decoded(filters, stored, mask)
    if most is not None and size > most:
        raise ValueError(f"{stored} bytes cannot decode to {size}")


def decode_all(filters: Sequence[Filter], parts: Sequence[Any], out: np.ndarray) -> None:
    """Decode chunks of one size, with every filter, into the rows of ``out``.

    ``out``: uint8, shape (chunks, size). ``parts``: the stored bytes of each chunk. Raises ValueError as `decode` does.

    >>> out = np.empty((2, 4), np.uint8)
    >>> decode_all((Filter("shuffle", (2,)),), [bytes([1, 2, 0, 0]), bytes([3, 4, 0, 0])], out)
    >>> out.view("<i2").tolist()
    [[1, 2], [3, 4]]
    """
    filters = tuple(filters)
    size, frame = out.shape[1], _frame(filters, out)
    if not filters and size and set(map(len, parts)) == {size}:
        out[...] = np.frombuffer(b"".join(parts), np.uint8).reshape(out.shape)
        return
    steps, rows = (_steps(filters, size, 0), out) if frame is None else (_steps(filters[1:], size, 0), frame.rows)
    for part, row in zip(parts, rows, strict=True):
        _run_steps(steps, part, size, row)
    if frame is not None:
        frame.undo(out)


def _frame(filters: tuple[Filter, ...], out: np.ndarray) -> Frame | None:
    """Return a frame that unshuffles the rows of ``out`` together, if it pays."""
    if not filters or filters[0].name != "shuffle" or not filters[0].parameters:
        return None
    from aggarray.codecs.shuffle import frames_are_faster

    (count, size), itemsize = out.shape, filters[0].parameters[0]
    # Blosc copies a block, here a chunk, once more; `shuffle` undoes a large chunk in parts.
    if not isinstance(itemsize, int) or not size or size > _LARGE_CHUNK or size % itemsize:
        return None
    if not frames_are_faster(itemsize, out.size):
        return None
    from aggarray.codecs._blosc_frame import reused_frame

    return reused_frame(itemsize, size, count)


@dataclass(frozen=True, slots=True)
class _Step:
    """One filter to decode.

    ``size``: decoded bytes, ``exact`` or at most; ``last``: whether it is decoded last; ``ratio``: largest number of bytes that
    one stored byte decodes to, None if unknown.
    """

    codec: Codec
    parameters: Parameters
    size: int
    exact: bool
    last: bool
    ratio: int | None


# The chunks of a variable share their filters, and mostly their size and mask.
@functools.lru_cache(maxsize=256)
def _steps(filters: tuple[Filter, ...], size: int, mask: int, exact: bool = True) -> tuple[_Step, ...]:
    """Return filters in decoding order; raise ValueError if one is missing."""
    steps: list[_Step] = []
    most = _TIMES * size + _SLACK
    for i, f in enumerate(filters):
        if mask >> i & 1:
            continue
        codec = _codec(f.name)
        if codec is None or not codec.usable(f.parameters):
            raise ValueError(f"{f.name}: no codec with parameters {f.parameters} is installed")
        grown = codec.grown(size, f.parameters)
        ratio = getattr(codec, "ratio", None) if grown is None else None
        steps.append(_Step(codec, f.parameters, size, exact, not steps, ratio))
        exact = exact and grown is not None
        # Incompressible data grows little, unless the compressor's blocks are tiny.
        size = most if grown is None else grown
    return tuple(reversed(steps))
