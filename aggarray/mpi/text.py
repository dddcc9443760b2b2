"""Messages of variable-length text: lengths, then UTF-8 bytes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.memory.ragged import Ragged
from aggarray.memory.rows import offsets_of
from aggarray.mpi.transport import Link, Message, Part, broadcast_tree, move

_TEXT = np.dtypes.StringDType()


def move_texts(link: Link, given: Sequence[Message], taken: Sequence[Message]) -> None:
    """Send and receive messages of text, as `transport.move` does for numbers."""
    sent = [Ragged.from_text(np.concatenate([part.get().ravel() for part in parcel.parts])) for parcel in given]
    lengths = [np.empty(parcel.size, np.int64) for parcel in taken]
    _move_flat(link, (given, [one.counts for one in sent]), (taken, lengths), np.dtype(np.int64))
    data = [np.empty(int(own.sum()), np.uint8) for own in lengths]
    _move_flat(link, (given, [one.flat for one in sent]), (taken, data), np.dtype(np.uint8))
    for parcel, own, letters in zip(taken, lengths, data, strict=True):
        texts, start = Ragged(letters, offsets_of(own)).to_text(), 0
        for part in parcel.parts:
            end = start + int(np.prod(part.shape, dtype=np.int64))
            part.put(texts[start:end].reshape(part.shape), add=False)
            start = end


def _move_flat(
    link: Link,
    given: tuple[Sequence[Message], Sequence[np.ndarray]],
    taken: tuple[Sequence[Message], Sequence[np.ndarray]],
    dtype: np.dtype[Any],
) -> None:
    """Move one 1-d array per message."""

    def flat(parcels: Sequence[Message], arrays: Sequence[np.ndarray]) -> list[Message]:
        pairs = zip(parcels, arrays, strict=True)
        return [Message(p.peer, (Part(a, (slice(0, len(a)),), a.shape),), p.way) for p, a in pairs]

    move(link, flat(*given), flat(*taken), dtype)


def copy_text_down(link: Link, group: Sequence[int], values: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """Return the root's text on all members, in C order.

    ``values``: the text on the root, None on the others. Collective over the group.
    """
    rows = Ragged.from_text(np.zeros(0, _TEXT) if values is None else values)
    lengths = np.empty(int(np.prod(shape, dtype=np.int64)), np.int64) if values is None else rows.counts
    broadcast_tree(link, group, lengths)
    data = np.empty(int(lengths.sum()), np.uint8) if values is None else np.array(rows.flat)
    broadcast_tree(link, group, data)
    return Ragged(data, offsets_of(lengths)).to_text().reshape(shape)
