"""Variable-length texts of complete datasets, without an object per text.

The texts lie in collections of the global heap. Those that were written together follow each other there, so that their lengths
locate them. Other objects are found in all collections at once: in each step the next object of each collection.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from aggarray.dataclass import NamedTuple
from aggarray.formats.hdf5.metadata.data import Data, require, require_supported
from aggarray.formats.hdf5.metadata.heaps import OBJECT
from aggarray.memory.selection import distinct
from aggarray.memory.texts import BLANKS, Texts, padded

#: Largest size of a collection with several objects.
_LARGEST = 1 << 16
#: Number of objects that are located at a time, whose columns fit into the cache of a processor.
_BLOCK = 1 << 14
#: Number of objects in a group of equal collections from which such groups are checked quickly.
_GROUP = 512
#: Number of collections whose objects are found one by one, which is faster.
_FEW = 16
#: First word of a collection.
_SIGNATURE = np.uint64(int.from_bytes(b"GCOL\1\0\0\0", "little"))
#: Bits of the number of an object, the greatest number, and these bits and the reserved ones, which are zero, in its header.
_NUMBER, _LAST, _HEAD = 16, (1 << 16) - 1, np.uint64(0xFFFFFFFF0000FFFF)


def heap_texts(data: Data, elements: np.ndarray) -> Texts:
    """Return the texts of heap references."""
    lengths = elements["count"].astype(np.int64)
    present = lengths != 0
    if not present.all():
        present |= elements["address"] != 0
    if not present.any():
        return Texts(np.zeros(0, np.uint8), lengths, np.zeros_like(lengths))
    rows = None if present.all() else np.flatnonzero(present)
    if rows is not None:
        elements = elements[rows]
    addresses, runs = _runs(np.ascontiguousarray(elements["address"]))
    heap = _Heap(data, addresses)
    number = elements["number"].astype(np.int64)
    require(int(number.max()) >> _NUMBER == 0, "unknown heap object")
    located = heap.objects(runs, number, lengths if rows is None else lengths[rows])
    if rows is None:
        return Texts(heap.buffer, lengths, located)
    starts = np.zeros_like(lengths)
    starts[rows] = located
    return Texts(heap.buffer, lengths, starts)


def _sorted_keys(collection: np.ndarray, number: np.ndarray, collections: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the sorted keys of objects, and their order if it is another."""
    last = int(number.max())
    keys = collection << _NUMBER | number
    if (keys[1:] > keys[:-1]).all():
        return keys, None
    order = np.zeros(0, np.int64)
    if (last + 1) * collections <= 4 * len(keys):
        # A table of the objects of all collections orders distinct keys faster.
        table = np.full((last + 1) * collections, -1)
        table[collection * (last + 1) + number] = np.arange(len(keys))
        order = table[table >= 0]
    if len(order) < len(keys):
        order = np.argsort(keys)
    return keys.take(order), order


def _positions(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the positions of the bytes of texts."""
    return np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))


class _Runs(NamedTuple):
    """Runs of texts in one collection each, which usually follow each other.

    ``collections``: number of the collection of each run; ``begins``: where each begins; ``sizes``: how many texts it has.
    """

    collections: np.ndarray
    begins: np.ndarray
    sizes: np.ndarray

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Return values of collections for each text."""
        return np.repeat(values[self.collections], self.sizes)


def _runs(addresses: np.ndarray) -> tuple[np.ndarray, _Runs]:
    """Return the sorted distinct addresses, and the runs of equal ones."""
    begins = np.append(0, np.flatnonzero(addresses[1:] != addresses[:-1]) + 1)
    distinct, collections = np.unique(addresses[begins], return_inverse=True)
    return distinct, _Runs(collections, begins, np.diff(begins, append=len(addresses)))


class _Heap:
    """Collections of the global heap, read into one buffer.

    ``begins``, ``ends``: where each collection lies in the buffer. Objects have keys: the number of the collection, then that
    of the object in it.
    """

    def __init__(self, data: Data, addresses: np.ndarray):
        require(16 <= int(addresses[0]) <= int(addresses[-1]) <= data.size - 16, "heap collection outside the file")
        places = addresses.astype(np.int64)
        # Collections near each other are read together, with the bytes between them.
        slots = np.minimum(np.diff(places, append=data.size), _LARGEST)
        self.begins = np.cumsum(slots) - slots
        self.buffer = np.empty(int(slots.sum()) + 16, np.uint8)
        leads = np.flatnonzero(np.diff(places, prepend=-1 - _LARGEST) > _LARGEST)
        bounds = np.append(self.begins[leads], len(self.buffer) - 16).tolist()
        self._data, self._spans = data, list(zip(places[leads].tolist(), bounds, bounds[1:], strict=False))
        self._read()
        self.buffer[-16:] = ord(" ")
        self._words = np.ndarray((len(self.buffer) - 7,), "<u8", self.buffer, strides=(1,))
        self._aligned = None if (self.begins & 7).any() else self._words[::8]
        sizes = self._words[self.begins + 8]
        require(bool((self._words[self.begins] == _SIGNATURE).all() and (sizes >= 16).all()), "malformed heap collection")
        # A larger collection has one huge object. Overlapping collections are invalid.
        require_supported(bool((sizes <= slots.astype(np.uint64)).all()), "large heap collection")
        self.ends = self.begins + sizes.astype(np.int64)

    def _read(self) -> None:
        for address, start, stop in self._spans:
            self._data.read_into(address, self.buffer[start:stop])

    def objects(self, runs: _Runs, number: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return where objects start; check their lengths."""
        starts = self._regular_objects(runs, number, lengths)
        if starts is not None:
            return starts
        keys, order = _sorted_keys(runs.spread(np.arange(len(self.begins))), number, len(self.begins))
        if order is None:
            return self._sorted_objects(keys, lengths)
        starts = np.empty_like(keys)
        starts[order] = self._sorted_objects(keys, lengths[order])
        return starts

    def _sorted_objects(self, keys: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return where the objects of sorted keys start."""
        starts, walked = np.empty(len(keys), np.int64), np.empty_like(self.begins)
        first = np.append(np.searchsorted(keys, np.arange(len(walked)) << _NUMBER), len(keys))
        cuts = distinct(np.searchsorted(first[:-1], np.arange(0, len(keys), _BLOCK))).tolist()
        for low, high in pairwise([*cuts, len(walked)]):
            part = slice(first[low], first[high])
            columns = keys[part], lengths[part]
            starts[part], walked[low:high] = self._consecutive(slice(low, high), first[low : high + 1] - first[low], *columns)
        others, other_starts, other_lengths = self._walk(walked)
        found = np.minimum(np.searchsorted(keys, others), len(keys) - 1)
        require(not ((starts[found] >= 0) & (keys[found] == others)).any(), "malformed heap collection")
        rows = np.flatnonzero(starts < 0)
        starts[rows] = self._walked_objects(keys[rows], lengths[rows], walked, (others, other_starts, other_lengths))
        if self._aligned is not None:
            self._blank_heads(self._aligned, starts, lengths)
        return starts

    def _regular_objects(self, runs: _Runs, number: np.ndarray, lengths: np.ndarray) -> np.ndarray | None:
        """Return where objects of one length start, None if they vary.

        Most collections begin with as many objects of that length as they have references; the result is None otherwise.
        """
        size = int(lengths[0])
        if self._aligned is None or (lengths != size).any():
            return None
        step, counts = (size + 7 & -8) + 16, np.zeros_like(self.begins)
        np.add.at(counts, runs.collections, runs.sizes)
        stops = self.begins + 16 + counts * step
        regular = stops <= self.ends
        # Numbers up to the count are of objects that are checked, even if some are repeated and others unused.
        least, last = (bound.reduceat(number, runs.begins) for bound in (np.minimum, np.maximum))
        regular[runs.collections[(least < 1) | (last > counts[runs.collections])]] = False
        others = np.flatnonzero(runs.spread(~regular))
        if len(others) > len(number) // 8:
            return None
        starts = runs.spread(self.begins + 32 - step)
        starts += number * step
        starts[others] = -1
        if not self._are_regular(np.flatnonzero(regular), counts, (starts, number), size):
            self._read()
            return None
        walked = np.where(regular, stops, self.begins + 16)
        rest = self._walk(walked)
        owner = rest[0] >> _NUMBER
        require(not (regular[owner] & (rest[0] & _LAST <= counts[owner])).any(), "malformed heap collection")
        keys = runs.spread(np.arange(len(regular)))[others] << _NUMBER | number[others]
        starts[others] = self._walked_objects(keys, lengths[others], walked, rest)
        return starts

    def _are_regular(self, regular: np.ndarray, counts: np.ndarray, columns: tuple[np.ndarray, np.ndarray], size: int) -> bool:
        """Return whether collections begin with objects 1 to n; blank the rest.

        ``columns``: where each object starts, and its number. Heads and padding become blanks. Collections of equal counts at
        equal distances are checked together, as long as there are few such groups.
        """
        begins, counts = self.begins[regular] + 16, counts[regular]
        distances = np.diff(begins, prepend=0)
        cuts = np.flatnonzero((counts[1:] != counts[:-1]) | (distances[1:] != distances[:-1])) + 1
        if (len(cuts) + 1) * _GROUP > len(columns[0]):
            return self._are_objects(*columns, size)
        step = (size + 7 & -8) + 16
        for low, high in pairwise([0, *cuts.tolist(), len(regular)]):
            count, distance = int(counts[low]), int(distances[high - 1])
            numbers, together = np.arange(1, count + 1, dtype=np.uint64), max(1, _BLOCK // count)
            for at in range(low, high, together):
                shape, strides = (min(together, high - at), count, step // 8), (distance, step, 8)
                objects = np.ndarray(shape, "<u8", self.buffer, int(begins[at]), strides)
                if (objects[..., 0] & _HEAD != numbers).any() or (objects[..., 1] != np.uint64(size)).any():
                    return False
                objects[..., :2] = BLANKS
                if size & 7:
                    objects[..., -1] = padded(objects[..., -1], size & 7)
        return True

    def _are_objects(self, starts: np.ndarray, number: np.ndarray, size: int) -> bool:
        """Return whether objects start at some places; blank what is no text.

        Places below zero are unknown. Heads and padding become blanks.
        """
        words, ordered = self._words[::8], np.sort(starts)
        if ((ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)).any():
            return False  # where an object is used twice, another one is unused and would not be checked
        for at in range(0, len(starts), _BLOCK):
            block, numbers = starts[at : at + _BLOCK], number[at : at + _BLOCK]
            if int(block.min()) < 0:
                block, numbers = block[block >= 0], numbers[block >= 0]
            first = block >> 3
            heads, sizes = words.take(first - 2), words.take(first - 1)
            if (heads & _HEAD != numbers.view(np.uint64)).any() or (sizes != np.uint64(size)).any():
                return False
            words[first - 2] = BLANKS
            words[first - 1] = BLANKS
            if size & 7:
                last = first + (size >> 3)
                words[last] = padded(words.take(last), size & 7)
        return True

    def _walked_objects(
        self, keys: np.ndarray, lengths: np.ndarray, walked: np.ndarray, objects: tuple[np.ndarray, ...]
    ) -> np.ndarray:
        """Return where some walked objects start; blank what else was walked.

        ``objects``: key, start and length of all walked objects, sorted.
        """
        others, other_starts, other_lengths = objects
        starts = np.zeros(len(keys), np.int64)
        if len(keys):
            rows = np.minimum(np.searchsorted(others, keys), max(len(others) - 1, 0))
            require(len(others) > 0 and bool((others[rows] == keys).all()), "unknown heap object")
            require(np.array_equal(other_lengths[rows], lengths), "wrong length of a text")
            starts = other_starts[rows]
        if self._aligned is not None and 8 * int(lengths.sum()) <= len(self.buffer):
            at = _positions(starts, lengths)
            texts = self.buffer[at]
            self._blank_gaps(self._aligned, walked)
            self.buffer[at] = texts
        return starts

    def _blank_gaps(self, words: np.ndarray, walked: np.ndarray) -> None:
        """Fill the buffer with blanks from places in each collection on.

        Texts between blanks can be searched at once.
        """
        words[:2] = BLANKS
        for stop, begin in zip((walked >> 3).tolist(), [*(self.begins[1:] >> 3).tolist(), len(words)], strict=True):
            words[stop : begin + 2] = BLANKS

    def _blank_heads(self, words: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
        """Replace the heads of objects and the bytes after them by blanks."""
        for at in range(0, len(starts), _BLOCK):
            first, size = starts[at : at + _BLOCK] >> 3, lengths[at : at + _BLOCK]
            words[first - 1] = BLANKS
            words[first - 2] = BLANKS
            # The word after an object of complete words is a head or a blank.
            last = first + (size >> 3)
            words[last] = padded(words.take(last), size & 7)

    def _consecutive(
        self, collections: slice, first: np.ndarray, keys: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return starts of objects of collections that begin with exactly these.

        Other objects have -1. The second result is where the objects after them begin, per collection. ``first``: the first
        key of each collection.
        """
        begins, counts = self.begins[collections] + 16, np.diff(first)
        sizes = lengths + 7 & -8
        stops = np.cumsum(sizes + 16)
        starts = stops - sizes + np.repeat(begins - np.concatenate([[0], stops])[first[:-1]], counts)
        last = first[1:] - 1
        inside = starts[last] + lengths[last] <= self.ends[collections]
        at = starts - 16 if inside.all() else np.where(np.repeat(inside, counts), starts - 16, 0)
        same = self._words_at(at) & _HEAD == (keys & _LAST).view(np.uint64)
        same &= self._words_at(at + 8) == lengths.view(np.uint64)
        exact = inside & np.logical_and.reduceat(same, first[:-1])
        places = starts if exact.all() else np.where(np.repeat(exact, counts), starts, -1)
        return places, np.where(exact, starts[last] + sizes[last], begins)

    def _words_at(self, at: np.ndarray) -> np.ndarray:
        """Return the words at multiples of eight after the begin of a collection."""
        return self._words[at] if self._aligned is None else self._aligned.take(at >> 3)

    def _walk(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return key, start and length of the objects from a place on, sorted."""
        collection, columns = np.arange(len(at)), []
        while len(at) > _FEW:
            inside = at + 16 <= self.ends[collection]
            collection, at = collection[inside], at[inside]
            heads, lengths = self._words[at], self._words[at + 8]
            left = (self.ends[collection] - at).astype(np.uint64)
            used = heads & np.uint64(_LAST) != 0
            # Object 0 is the free space at the end.
            require(bool((lengths == left)[~used].all()), "malformed heap collection")
            collection, at, heads, lengths, left = (c[used] for c in (collection, at + 16, heads, lengths, left))
            valid = (lengths <= left - np.uint64(16)) & (heads >> np.uint64(32) == 0)
            require(bool(valid.all()), "malformed heap collection")
            sizes = lengths.astype(np.int64)
            columns.append((collection << _NUMBER | (heads & np.uint64(_LAST)).astype(np.int64), at, sizes))
            at = at + (sizes + 7 & -8)
        few = [
            item for number, start in zip(collection.tolist(), at.tolist(), strict=True) for item in self._each(number, start)
        ]
        columns.append((*np.array(few, np.int64).reshape(-1, 3).T,))
        keys, starts, sizes = (np.concatenate(column) for column in zip(*columns, strict=True))
        order = np.argsort(keys)
        require(bool((np.diff(keys[order]) > 0).all()), "malformed heap collection")
        return keys[order], starts[order], sizes[order]

    def _each(self, collection: int, at: int) -> Iterator[tuple[int, int, int]]:
        """Yield key, start and length of the objects of one collection."""
        end = int(self.ends[collection])
        while at + 16 <= end:
            number, _, reserved, length = OBJECT.unpack_from(self.buffer.data, at)
            if number == 0:
                require(length == end - at, "malformed heap collection")
                return
            require(reserved == 0 and length <= end - at - 16, "malformed heap collection")
            yield collection << _NUMBER | number, at + 16, length
            at += 16 + (length + 7 & -8)
