"""Messages of variable-length text: lengths, then UTF-8 bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggarray.memory.ragged import Ragged
from aggarray.memory.rows import offsets_of
from aggarray.mpi.transport.base import Link
from aggarray.mpi.transport.moving import Message, Part, move
from aggarray.mpi.transport.trees import broadcast_tree

_TEXT = np.dtypes.StringDType()


def move_texts(link: Link, outgoing: Sequence[Message], incoming: Sequence[Message]) -> None:
    """Send and receive messages of text, as `transport.move` does for numbers."""
    sent = [Ragged.from_text(np.concatenate([part.get().ravel() for part in message.parts])) for message in outgoing]
    lengths = [np.empty(message.size, np.int64) for message in incoming]
    move(link, _flat(outgoing, [rows.counts for rows in sent]), _flat(incoming, lengths), np.dtype(np.int64))
    data = [np.empty(int(counts.sum()), np.uint8) for counts in lengths]
    move(link, _flat(outgoing, [rows.flat for rows in sent]), _flat(incoming, data), np.dtype(np.uint8))
    for message, counts, flat_bytes in zip(incoming, lengths, data, strict=True):
        for part, texts in message.split(Ragged(flat_bytes, offsets_of(counts)).to_text()):
            part.put(texts, add=False)


def _flat(messages: Sequence[Message], arrays: Sequence[np.ndarray]) -> list[Message]:
    """Return the messages with one 1-d array each."""
    pairs = zip(messages, arrays, strict=True)
    return [Message(m.rank, (Part(a, (slice(0, len(a)),), a.shape),), m.direction) for m, a in pairs]


def broadcast_text(link: Link, group: Sequence[int], values: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
    """Return the root's text on all members, in C order.

    ``values``: the text on the root, None on the others. Collective over the group.
    """
    rows = Ragged.from_text(np.zeros(0, _TEXT) if values is None else values)
    lengths = np.empty(int(np.prod(shape, dtype=np.int64)), np.int64) if values is None else rows.counts
    broadcast_tree(link, group, lengths)
    data = np.empty(int(lengths.sum()), np.uint8) if values is None else np.array(rows.flat)
    broadcast_tree(link, group, data)
    return Ragged(data, offsets_of(lengths)).to_text().reshape(shape)
