"""Columns of texts: the bytes of all texts in one buffer, decoded lazily.

Comparisons take eight bytes of each text at a time, without a Python object per text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from aggarray.dataclass import NamedTuple

#: Number of texts that are compared at a time, whose columns fit into the cache of a processor.
_BLOCK = 1 << 14
#: Longest text that is compared in columns: the longest path of Linux.
_LONGEST = 1 << 12
#: Number of bytes that are searched at a time.
_PART = 1 << 17

_ONES, _HIGH, BLANKS, _COLONS = (np.uint64(int.from_bytes(bytes([byte]) * 8, "little")) for byte in b"\x01\x80 :")
_FACTOR, _SHIFT, _TOP = np.uint64(0x9E3779B97F4A7C15), np.uint64(29), np.uint64(48)
#: By the number of bytes left in a word: those bytes, and blanks in the others.
_KEPT = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
_FILL = ~_KEPT & BLANKS


class Fingerprints(NamedTuple):
    """Facts per text: a hash, whether it has control or non-ASCII characters.

    ``colons``: whether it has a colon.
    """

    hashes: np.ndarray
    unusual: np.ndarray
    colons: np.ndarray


class Texts(Sequence[str]):
    """Sequence of texts in one buffer, decoded lazily.

    ``starts``: where each text starts in the buffer, None if they follow each other.

    >>> Texts(np.frombuffer(b"abc", np.uint8), np.array([1, 2]))[1]
    'bc'
    """

    __slots__ = ("_fingerprints", "_is_joined", "_is_plain", "_tails", "buffer", "lengths", "starts")

    def __init__(self, buffer: np.ndarray, lengths: np.ndarray, starts: np.ndarray | None = None) -> None:
        self.buffer, self.lengths = buffer, lengths
        self._is_joined = starts is None
        self.starts = np.cumsum(lengths) - lengths if starts is None else starts
        self._fingerprints: Fingerprints | None = None
        self._is_plain: bool | None = None
        self._tails: np.ndarray | None = None

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Return the column of texts."""
        encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return cls(np.frombuffer(b"".join(encoded), np.uint8), lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            return [self[i] for i in range(len(self))[item]]
        number = range(len(self))[item]
        start = self.starts[number]
        return self.buffer[start : start + self.lengths[number]].tobytes().decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        ends = self.starts + self.lengths
        first, last = (int(self.starts.min()), int(ends.max())) if len(self) else (0, 0)
        if 4 * int(self.lengths.sum()) < last - first:
            view = np.ascontiguousarray(self.buffer).data
            ranges = zip(self.starts.tolist(), ends.tolist(), strict=True)
            yield from (str(view[start:end], "utf-8", "surrogateescape") for start, end in ranges)
            return
        buffer = self.buffer[first:last].tobytes()
        places = zip((self.starts - first).tolist(), (ends - first).tolist(), strict=True)
        if buffer.isascii():
            text = buffer.decode("ascii")
            yield from (text[start:end] for start, end in places)
        else:
            yield from (buffer[start:end].decode("utf-8", "surrogateescape") for start, end in places)

    @classmethod
    def joined(cls, parts: Sequence[Texts]) -> Texts:
        """Return the texts of several columns, each in one piece.

        >>> list(Texts.joined([Texts.of(["a", "b"]), Texts.of(["c"])]))
        ['a', 'b', 'c']
        """
        if not parts:
            return cls.of(())
        return cls(np.concatenate([part.buffer for part in parts]), np.concatenate([part.lengths for part in parts]))

    @classmethod
    def chained(cls, first: Texts, second: Texts) -> Texts:
        """Return the texts of two columns, which may share parts of a buffer."""
        columns = (first.buffer, second.buffer), (first.lengths, second.lengths)
        starts = np.concatenate([first.starts, second.starts + len(first.buffer)])
        return cls(np.concatenate(columns[0]), np.concatenate(columns[1]), starts)

    def least(self) -> int:
        """Return the row of the first text in the order of their bytes.

        >>> Texts.of(["b", "ab", "a", "b"]).least()
        2
        """
        view, rows, at = _view(self), np.arange(len(self)), 0
        while len(rows) > 1:
            left = np.clip(self.lengths[rows] - at, 0, 8)
            words = (view[np.minimum(self.starts[rows] + at, len(view) - 1)] & _KEPT[left]).byteswap()
            rows = rows[words == words.min()]
            if int(self.lengths[rows].min()) <= at + 8:  # a text that ends here is the least of those that are left
                rows = rows[self.lengths[rows] == self.lengths[rows].min()][:1]
            at += 8
        return int(rows[0])

    def text(self) -> str:
        """Return all texts joined."""
        return self.buffer.tobytes().decode("utf-8", "surrogateescape") if self._is_joined else "".join(self)

    def take(self, rows: Any) -> Texts:
        """Return some texts, which share the buffer.

        ``rows``: their numbers in this order, or a slice.
        """
        if not isinstance(rows, slice) and len(rows) == len(self) and (rows[1:] > rows[:-1]).all():
            return self
        return Texts(self.buffer, self.lengths[rows], self.starts[rows])

    def start_with(self, text: str) -> np.ndarray:
        """Return which texts start with a text.

        >>> Texts.of(["a", "ba", "b"]).start_with("b").tolist()
        [False, True, True]
        """
        encoded = text.encode("utf-8", "surrogateescape")
        return self._starting(np.flatnonzero(self.lengths >= len(encoded)), encoded)

    def equals(self, text: str) -> np.ndarray:
        """Return which texts equal a text."""
        encoded = text.encode("utf-8", "surrogateescape")
        return self._starting(np.flatnonzero(self.lengths == len(encoded)), encoded)

    def _starting(self, rows: np.ndarray, text: bytes) -> np.ndarray:
        """Return which texts are among some rows and start with a text."""
        for position, byte in enumerate(text):
            rows = rows[self.buffer[self.starts[rows] + position] == byte]
        starting = np.zeros(len(self), bool)
        starting[rows] = True
        return starting

    def possibly_ending_with(self, ends: Iterable[bytes]) -> np.ndarray:
        """Return the rows of texts that may end with one of those given.

        All others end otherwise.

        >>> Texts.of(["/a/temperature1.nc", "/a/temperature2.nc"]).possibly_ending_with([b"temperature2.nc"]).tolist()
        [1]
        """
        tails = self.tails()
        if tails is None:
            return np.arange(len(self))
        marked, last = np.zeros(1 << 16, bool), tails[:, 1]
        words = {end[-8:] for end in ends}
        long = np.array([int.from_bytes(word, "little") for word in words if len(word) == 8], np.uint64)
        marked[long * _FACTOR >> _TOP] = True
        possible = marked[last * _FACTOR >> _TOP]
        for word in words:
            if len(word) < 8:
                possible |= last >> np.uint64(64 - 8 * len(word)) == int.from_bytes(word, "little") if word else True
        return np.flatnonzero(possible)

    def end_with_one_of(self, characters: str) -> bool:
        """Return whether a text is empty or ends with an ASCII character given.

        >>> Texts.of(["a", "b."]).end_with_one_of("./"), Texts.of(["a.", "b/c"]).end_with_one_of("/")
        (True, False)
        """
        if not self.lengths.all():
            return True
        last = self.buffer[self.starts + self.lengths - 1]
        return any(bool((last == byte).any()) for byte in characters.encode())

    def differ_from_previous(self) -> np.ndarray:
        """Return which texts but the first differ from the one before.

        >>> Texts.of(["a", "a", "b"]).differ_from_previous().tolist()
        [False, True]
        """
        differ: np.ndarray = self.lengths[1:] != self.lengths[:-1]
        for rows, words in _words(_view(self), self.starts, self.lengths):
            column = np.zeros(len(self), np.uint64)
            column[rows] = words
            differ |= column[1:] != column[:-1]
        return differ

    def contain(self, character: str) -> np.ndarray:
        """Return which texts contain an ASCII character other than a blank.

        >>> Texts.of(["a", "ba", "b"]).contain("b").tolist()
        [False, True, True]
        """
        pattern = np.uint64(int.from_bytes(character.encode() * 8, "little"))
        view, containing = _view(self), np.zeros(len(self), np.uint64)
        for at in range(0, len(self), _BLOCK):
            block = slice(at, at + _BLOCK)
            for rows, words in _words(view, self.starts[block], np.minimum(self.lengths[block], _LONGEST)):
                others = words ^ pattern
                containing[block][rows] |= (others - _ONES) & ~others
        contains = np.asarray(containing & _HIGH != 0)
        for row, text in self._long_texts():
            contains[row] = character.encode() in text
        return contains

    def is_plain(self) -> bool:
        """Return whether the buffer is printable ASCII without colons.

        Bytes between the texts count, too. The buffer is not searched if the texts are a small part of it.
        """
        if self._is_plain is None:
            dense = 4 * int(self.lengths.sum()) >= len(self.buffer)
            self._is_plain = dense and all(
                b":" not in part and int(np.frombuffer(part, np.int8).min()) >= ord(" ") for part in self._parts()
            )
        return self._is_plain

    def buffer_has(self, character: str) -> bool:
        """Return whether an ASCII character is in the buffer."""
        return any(character.encode() in part for part in self._parts())

    def _parts(self) -> Iterator[bytes]:
        """Yield the buffer in parts, which are copied and searched in cache."""
        return (self.buffer[at : at + _PART].tobytes() for at in range(0, len(self.buffer), _PART))

    def buffer_count(self, text: str) -> int:
        """Return how often a text is in the buffer, between the texts too.

        >>> Texts.of(["a/.", "/."]).buffer_count("/.")
        2
        """
        pattern, length = text.encode(), _PART + len(text) - 1
        return sum(self.buffer[at : at + length].tobytes().count(pattern) for at in range(0, len(self.buffer), _PART))

    def tails(self) -> np.ndarray | None:
        """Return the last sixteen bytes of each text as two words.

        The result is None if a text is shorter.
        """
        if self._tails is None and int(self.lengths.min(initial=_LONGEST)) >= 16:
            buffer = np.ascontiguousarray(self.buffer)
            view = np.ndarray((max(len(buffer) - 15, 0),), "V16", buffer, strides=(1,))
            tails = np.empty(len(self), "V16")
            for at in range(0, len(self), _BLOCK):
                block = slice(at, at + _BLOCK)
                tails[block] = view[self.starts[block] + (self.lengths[block] - 16)]
            self._tails = tails.view("<u8").reshape(-1, 2)
        return self._tails

    def _long_texts(self) -> Iterator[tuple[int, bytes]]:
        for row in np.flatnonzero(self.lengths > _LONGEST).tolist():
            yield row, self.buffer[self.starts[row] : self.starts[row] + self.lengths[row]].tobytes()

    def fingerprints(self) -> Fingerprints:
        """Return facts about each text, computed once."""
        if self._fingerprints is None:
            count = len(self)
            facts = Fingerprints(np.zeros(count, np.uint64), np.zeros(count, bool), np.zeros(count, bool))
            view = _view(self)
            for at in range(0, count, _BLOCK):
                block = slice(at, at + _BLOCK)
                found = _fingerprint(view, self.starts[block], np.minimum(self.lengths[block], _LONGEST))
                for column, part in zip(facts, found, strict=True):
                    column[block] = part
            for row, text in self._long_texts():
                facts.unusual[row] = not text.isascii() or min(text) < ord(" ")
                facts.colons[row] = b":" in text
            self._fingerprints = facts
        return self._fingerprints

    def distinct(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the first row of each distinct text, and the number of each.

        >>> [column.tolist() for column in Texts.of(["b", "a", "b"]).distinct()]
        [[0, 1], [0, 1, 0]]
        """
        count = len(self)
        if not count or self.lengths.max() > _LONGEST:
            return _distinct(self)
        tails = self.tails()
        every = np.arange(count)
        if tails is not None:
            if _are_increasing(tails):  # names of files that count or have dates
                return every, every
            hashes = tails[:, 0] * _FACTOR
            hashes ^= tails[:, 1]
            if _are_distinct(hashes):
                return every, every
        hashes = self.fingerprints().hashes
        if _are_distinct(hashes.copy()):
            return every, every
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        first = np.empty(count, np.int64)
        first[order] = np.repeat(order[begins], np.diff(begins, append=count))
        rows = np.flatnonzero(first == np.arange(count))
        if not self._equal(first):
            return _distinct(self)  # different texts of equal hashes
        return rows, np.searchsorted(rows, first)

    def _equal(self, rows: np.ndarray) -> bool:
        """Return whether each text equals that of a row."""
        if not np.array_equal(self.lengths, self.lengths[rows]):
            return False
        view = _view(self)
        for at in range(0, len(self), _BLOCK):
            block = slice(at, at + _BLOCK)
            lengths = self.lengths[block]
            pairs = zip(_words(view, self.starts[block], lengths), _words(view, self.starts[rows[block]], lengths), strict=True)
            if not all(np.array_equal(mine, other) for (_, mine), (_, other) in pairs):
                return False
        return True


def _view(texts: Texts) -> np.ndarray:
    """Return the eight bytes from each position of a buffer on."""
    buffer = texts.buffer
    if int((texts.starts + texts.lengths).max(initial=0)) + 7 > len(buffer):
        buffer = np.concatenate([buffer, np.zeros(8, np.uint8)])
    return np.ndarray((len(buffer) - 7,), "<u8", np.ascontiguousarray(buffer), strides=(1,))


def _words(view: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield rows and their next eight bytes, blanks after the end of a text."""
    if not (starts & 7).any():  # aligned words are read faster
        starts, view, step = starts >> 3, view[::8], 1
    else:
        step = 8
    complete = int(lengths.min(initial=_LONGEST)) // 8
    for number in range(complete):
        yield slice(None), view[starts + step * number]
    rows, at = np.flatnonzero(lengths > 8 * complete), complete
    while len(rows):
        left = np.minimum(lengths[rows] - 8 * at, 8)
        yield rows, padded(view[starts[rows] + step * at], left)
        at += 1
        rows = rows[lengths[rows] > 8 * at]


def padded(words: np.ndarray, left: np.ndarray | int) -> np.ndarray:
    """Return words with blanks after the first ``left`` bytes of each."""
    return np.asarray(words & _KEPT[left] | _FILL[left])


def _fingerprint(view: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Fingerprints:
    hashes = lengths.astype(np.uint64)
    unusual, colons = np.zeros((2, len(lengths)), np.uint64)
    for rows, words in _words(view, starts, lengths):
        mixed = (hashes[rows] ^ words) * _FACTOR
        hashes[rows] = mixed ^ mixed >> _SHIFT
        # A word has none of these bytes if its high bits are zero.
        unusual[rows] |= (words - BLANKS) | words
        others = words ^ _COLONS
        colons[rows] |= (others - _ONES) & ~others
    return Fingerprints(hashes, unusual & _HIGH != 0, colons & _HIGH != 0)


def _are_increasing(tails: np.ndarray) -> bool:
    """Return whether rows of two words increase, in the order of their bytes."""
    for at in range(0, len(tails) - 1, _BLOCK):
        first, last = tails[at : at + _BLOCK + 1].byteswap().T
        steps = (first[1:] > first[:-1]) | (first[1:] == first[:-1]) & (last[1:] > last[:-1])
        if not steps.all():
            return False
    return True


def _are_distinct(hashes: np.ndarray) -> bool:
    """Return whether hashes are distinct; sort them."""
    hashes.sort()
    return bool((hashes[1:] != hashes[:-1]).all())


def _distinct(texts: Texts) -> tuple[np.ndarray, np.ndarray]:
    """Return the same as `Texts.distinct`, from decoded texts."""
    numbers: dict[str, int] = {}
    column = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
    rows = np.full(len(numbers), len(column), np.int64)
    np.minimum.at(rows, column, np.arange(len(column)))
    return rows, column
