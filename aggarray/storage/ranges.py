"""Which byte ranges of an object are read together?"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

#: (offset, size) in bytes.
Range: TypeAlias = tuple[int, int]
#: What tells that a file has changed: modification time in ns, size in bytes, inode (of a remote object: a number of its tag).
SourceState: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Versions:
    """What files were like when one read met them first, by path: all that it reads of a file must be of one version.

    ``states``: of local files, and of remote ones that were asked for; ``tags``: what the answers told of remote ones.
    """

    states: dict[str, SourceState] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "Versions":
        """Return the same, to be added to."""
        return Versions(dict(self.states), dict(self.tags))


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes to be read in one call, and the ranges (by number) that lie in them."""

    offset: int
    size: int
    members: tuple[int, ...]


def spans(ranges: Sequence[Range], gap: int, most: int) -> list[Span]:
    """Return what to read for ranges in any order, overlapping or not, by offset; empty ranges are in none.

    ``gap``: ranges with at most so many bytes between them are read together, ``most`` bytes at most, but for a longer range.

    >>> spans([(100, 10), (0, 20), (5, 0), (1 << 20, 3)], 1 << 16, 1 << 24)
    [Span(offset=0, size=110, members=(1, 0)), Span(offset=1048576, size=3, members=(3,))]
    """
    found: list[Span] = []
    members: list[int] = []
    start = end = 0
    for i in sorted((i for i, r in enumerate(ranges) if r[1] > 0), key=lambda i: ranges[i][0]):
        offset, size = ranges[i]
        if members and (offset > end + gap or max(end, offset + size) - start > most):
            found.append(Span(start, end - start, tuple(members)))
            members = []
        if not members:
            start = end = offset
        members.append(i)
        end = max(end, offset + size)
    if members:
        found.append(Span(start, end - start, tuple(members)))
    return found
