"""What are files taken to be like that nobody has looked at as a whole, because others of their kind are like that?

Plain data: `alike` holds files against it.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VariableSignature:
    """What a file says of one of its variables, as far as it decides about what the values mean.

    ``attrs``: (name, value as text); ``digest``: of the values of a coordinate, None where they were not read; ``falls``:
    its pairs of bounds run downwards. ``hung``: (key, variable) for all that hangs on it; ``data``: it is data, and hangs on
    nothing; ``parent``: the variable whose bounds it is.
    """

    dtype: str
    dimensions: tuple[str, ...]
    shape: tuple[int, ...]
    attrs: tuple[tuple[str, str], ...]
    digest: bytes | None = None
    falls: bool = False
    hung: tuple[tuple[str, str], ...] = ()
    data: bool = True
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class FileSignature:
    """What files of one kind are taken to be like.

    ``model``: the file that speaks for them, of a ``format``, with ``facts`` of its variables by name. ``attrs``: those global
    attributes that tell datasets apart, and ``open``: names of others that do, which were read of each file itself. ``groups``:
    both, of the groups by path. ``read``: coordinates that were read of each file too, ``along``: the dimensions whose sizes
    they gave.
    """

    model: str
    format: str
    facts: Mapping[str, VariableSignature]
    attrs: Mapping[str, str]
    groups: Mapping[str, Mapping[str, str]]
    open: tuple[str, ...]
    read: frozenset[str]
    along: frozenset[str]

    def __hash__(self) -> int:
        return hash(self.model)
