"""How are the stored bytes of a chunk decoded?

A file states an encoding as filters, in the order in which they were applied; they are undone in reverse. A codec is a
module of this folder with a ``CODEC`` object, or an object that another package registers under the entry point
``aggarray.codecs``: there is no list to edit. Codecs let other threads run while they work on many bytes; where a library
does not, its codec works piece by piece.
"""

import functools
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from aggarray.codecs._blosc_frame import BYTES, MAX_ITEM, Frame
from aggarray.codecs.base import Codec, Filter, Parameters
from aggarray.plugins import foreign_objects, own_objects

#: No compressor makes more than this of bytes that do not compress, whichever ones went before it.
_TIMES, _SLACK = 8, 1 << 16
#: Bytes that a thread may keep for the next chunks.
_KEPT = 1 << 22

__all__ = ["Codec", "Filter", "Parameters", "before_shuffle", "check_size", "codecs", "decode", "decode_all", "known"]
__all__ += ["decode_at_most", "most_decoded"]


def codecs() -> Mapping[str, Codec]:
    """Return every codec there is by name: this folder's, then those of other packages, which replace none.

    >>> {"shuffle", "deflate", "fletcher32"} <= set(codecs())
    True
    """
    return MappingProxyType({**_foreign_codecs(), **_own_codecs()})


@functools.cache
def _own_codecs() -> dict[str, Codec]:
    return _by_name(own_objects(sys.modules[__name__], "CODEC"))


@functools.cache
def _foreign_codecs() -> dict[str, Codec]:
    return _by_name(foreign_objects("aggarray.codecs"))


def _by_name(found: Iterable[Any]) -> dict[str, Codec]:
    """Return what is a codec, the first of each name."""
    named: dict[str, Codec] = {}
    for one in found:
        if isinstance(one, Codec):
            named.setdefault(one.name, one)
    return named


def _codec(name: str) -> Codec | None:
    """Return a codec by name, None where there is none."""
    own = _own_codecs().get(name)
    return _foreign_codecs().get(name) if own is None else own


def known(filters: Sequence[Filter]) -> bool:
    """Tell whether all filters can be decoded here: codecs there, their libraries installed, parameters valid.

    >>> known((Filter("shuffle", (4,)), Filter("deflate"))), known((Filter("secret"),)), known((Filter("shuffle", (0,)),))
    (True, False, False)
    """
    return all((codec := _codec(f.name)) is not None and codec.usable(f.parameters) for f in filters)


def before_shuffle(filters: tuple[Filter, ...]) -> tuple[Filter, ...] | None:
    """Return the filters that make the planes of a shuffled chunk, where shuffle is the last to be undone; else None.

    Few elements can then be taken from the planes. Of a chunk's mask bit 0 speaks of shuffle itself; shift it by one for the
    filters returned.

    >>> before_shuffle((Filter("shuffle", (4,)), Filter("deflate")))
    (Filter(name='deflate', parameters=()),)
    """
    return filters[1:] if filters and filters[0].name == "shuffle" else None


def decode(filters: Sequence[Filter], data: Any, size: int, mask: int = 0, out: np.ndarray | None = None) -> np.ndarray:
    """Return the decoded bytes of a chunk: uint8, of shape (size,).

    ``filters`` stand in the order of encoding; bit i of ``mask``: filter i was skipped when the chunk was written
    (HDF5). ``data``: the stored bytes, a contiguous buffer. ``out``: a writable, contiguous uint8 array of ``size``
    bytes that is filled and returned; without it the result may share the memory of ``data`` and be read-only.
    ValueError, naming the codec, where sizes are wrong, checksums differ or the data is damaged: ``out`` then holds
    anything.

    >>> import zlib
    >>> decode((Filter("shuffle", (2,)), Filter("deflate")), zlib.compress(bytes([1, 2, 3, 0, 0, 0])), 6).view("<i2").tolist()
    [1, 2, 3]
    """
    current = _undone(_steps(tuple(filters), int(size), int(mask)), np.frombuffer(data, np.uint8), out)
    if current.size != size:
        raise ValueError(f"{current.size} bytes stored where {size} should be")
    if out is None or current is out:
        return current
    out[...] = current
    return out


def decode_at_most(filters: Sequence[Filter], data: Any, most: int, mask: int = 0) -> np.ndarray:
    """Return the bytes that are left when filters are undone, as `decode` does, ``most`` of them or fewer.

    >>> import zlib
    >>> decode_at_most((Filter("deflate"),), zlib.compress(bytes(7)), 1000).size
    7
    """
    current = _undone(_steps(tuple(filters), int(most), int(mask), False), np.frombuffer(data, np.uint8), None)
    if current.size > most:
        raise ValueError(f"{current.size} bytes stored where {most} should be at most")
    return current


def _undone(steps: "tuple[_Step, ...]", current: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    """Undo filters, the last step perhaps into ``out``."""
    for step in steps:
        size = step.size
        # promise: codec-output-bound
        if step.ratio is not None and size > (room := step.ratio * current.size + _SLACK):
            if step.exact:
                raise ValueError(f"{step.codec.name}: {current.size} bytes cannot hold {size}")
            size = room
        try:
            current = step.codec.decode(current, size, step.parameters, out if step.last else None)
        except (ValueError, RuntimeError) as error:
            raise ValueError(f"{step.codec.name}: {error}") from error
        if current.size != size and (step.exact or current.size > size):
            raise ValueError(f"{step.codec.name}: {current.size} bytes decoded where {size} should be")
    return current


def most_decoded(filters: Sequence[Filter], stored: int, mask: int = 0) -> int | None:
    """Return how many bytes ``stored`` ones decode to at most; None where a codec of another package does not tell.

    >>> most_decoded((Filter("shuffle", (4,)), Filter("deflate")), 10), most_decoded((), 10)
    (75856, 10)
    """
    for i in reversed(range(len(filters))):
        if mask >> i & 1:
            continue
        f = filters[i]
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
    """Raise ValueError where so few ``stored`` bytes cannot decode to ``size``: asked before memory is taken for these."""
    most = most_decoded(filters, stored, mask)
    if most is not None and size > most:
        raise ValueError(f"{stored} bytes cannot hold {size}")


def decode_all(filters: Sequence[Filter], parts: Sequence[Any], out: np.ndarray) -> None:
    """Decode many chunks of one size, none of whose filters was skipped, into the rows of ``out``: uint8, (chunks, size).

    ``parts``: the stored bytes of each. ValueError as `decode` raises it.

    >>> out = np.empty((2, 4), np.uint8)
    >>> decode_all((Filter("shuffle", (2,)),), [bytes([1, 2, 0, 0]), bytes([3, 4, 0, 0])], out)
    >>> out.view("<i2").tolist()
    [[1, 2], [3, 4]]
    """
    count, size = out.shape
    rest = before_shuffle(tuple(filters))
    itemsize = filters[0].parameters[0] if rest is not None else 1
    if rest is None or not isinstance(itemsize, int) or not 1 < itemsize <= MAX_ITEM or size % itemsize or not size:
        _decode_rows(filters, parts, out)
        return
    if not known(filters):
        raise ValueError(f"shuffle: no codec for it with parameters {filters[0].parameters} is installed")
    frame = _frames.of(itemsize, size, count)
    _decode_rows(rest, parts, frame.rows)
    frame.undo(out)


class _Frames(threading.local):
    """The frame that a thread used last: chunks of a variable are of one size."""

    def __init__(self) -> None:
        self._last: tuple[tuple[int, int, int], Frame] | None = None

    def of(self, itemsize: int, size: int, count: int) -> Frame:
        """Return a frame of so many chunks, its rows to be filled."""
        key = (itemsize, size, count)
        if self._last is None or self._last[0] != key:
            frame = Frame(itemsize, BYTES, size, count)
            if size * count > _KEPT:
                return frame
            self._last = (key, frame)
        return self._last[1]


_frames = _Frames()


def _decode_rows(filters: Sequence[Filter], parts: Sequence[Any], rows: np.ndarray) -> None:
    size = rows.shape[1]
    steps = _steps(tuple(filters), size, 0)
    if not steps:
        for part, row in zip(parts, rows, strict=True):
            if len(part) != size:
                raise ValueError(f"{len(part)} bytes stored where {size} should be")
            row[...] = np.frombuffer(part, np.uint8)
        return
    if len(steps) != 1:
        for part, row in zip(parts, rows, strict=True):
            row[...] = decode(filters, part, size)
        return
    run, parameters = steps[0].codec.decode, steps[0].parameters
    for part, row in zip(parts, rows, strict=True):
        try:
            found = run(np.frombuffer(part, np.uint8), size, parameters, row)
        except (ValueError, RuntimeError) as error:
            raise ValueError(f"{steps[0].codec.name}: {error}") from error
        if found.size != size:
            raise ValueError(f"{steps[0].codec.name}: {found.size} bytes decoded where {size} should be")
        if found is not row:
            row[...] = found


@dataclass(frozen=True, slots=True)
class _Step:
    """A filter to be undone: what comes out, exactly or at most so many bytes; whether it is the last one.

    ``ratio``: a byte that goes in makes at most so many, None where that is not known.
    """

    codec: Codec
    parameters: Parameters
    size: int
    exact: bool
    last: bool
    ratio: int | None


# A variable's chunks have the same filters, and hardly more than one size and mask.
@functools.lru_cache(maxsize=256)
def _steps(filters: tuple[Filter, ...], size: int, mask: int, exact: bool = True) -> tuple[_Step, ...]:
    """Return what is to be undone, in that order; ValueError where a codec is missing."""
    steps: list[_Step] = []
    most = _TIMES * size + _SLACK
    for i, f in enumerate(filters):
        if mask >> i & 1:
            continue
        codec = _codec(f.name)
        if codec is None or not codec.usable(f.parameters):
            raise ValueError(f"{f.name}: no codec for it with parameters {f.parameters} is installed")
        grown = codec.grown(size, f.parameters)
        ratio = getattr(codec, "ratio", None) if grown is None else None
        steps.append(_Step(codec, f.parameters, size, exact, not steps, ratio))
        exact = exact and grown is not None
        # What a compressor makes of data that does not compress is not much longer, unless its blocks are tiny.
        size = most if grown is None else grown
    return tuple(reversed(steps))
