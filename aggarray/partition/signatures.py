"""Signatures of files: the properties that files of one group share.

`aggarray.scan.comparison` compares files with them.
"""

from __future__ import annotations

from collections.abc import Mapping

from aggarray.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class VariableSignature:
    """The properties of a variable that determine the meaning of its values.

    ``attrs``: (name, value as text); ``digest``: of the values of a coordinate, None where they were not read; ``falls``:
    its pairs of bounds are decreasing. ``hung``: (key, variable) of each variable attached to it; ``data``: it is a data
    variable, not attached to another; ``parent``: the variable whose bounds it is.
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
    """The properties that the files of one group are assumed to share.

    ``model``: the representative file, of a ``format``, with ``facts`` of its variables by name. ``attrs``: the global
    attributes that distinguish datasets; ``open``: names of other such attributes, which were read of each file. ``groups``:
    both, of the groups by path. ``read``: coordinates that were read of each file; ``along``: the dimensions whose sizes
    they give.
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
