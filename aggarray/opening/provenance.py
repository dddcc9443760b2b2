"""What was an aggregation made of? Enough to make it again with more files, or by other rules, without opening the old ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aggarray.aggregate.join import same_attribute
from aggarray.aggregate.rules import Rules
from aggarray.arrays import MasterArray
from aggarray.formats.base import Structure
from aggarray.storage.access import ANYWHERE, Access

DEFAULT_RULES = Rules()


def _nothing() -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Which arrays were chosen of those that joining gave: by ``names`` (None: any) and ``attributes``."""

    names: tuple[str, ...] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def fits(self, array: MasterArray) -> bool:
        """Tell whether an array is chosen."""
        named = self.names is None or array.name in self.names
        return named and all(has_attribute(array, key, value) for key, value in self.attributes.items())


def has_attribute(array: MasterArray, key: str, value: Any) -> bool:
    """Tell whether an array, or else its files, has an attribute of a value; units and calendar count as such."""
    for attrs in (array.attrs, array.file_attrs):
        if key in attrs:
            return same_attribute(attrs[key], value)
    return key in ("units", "calendar") and getattr(array, key) == value


@dataclass(frozen=True, slots=True, eq=False)
class Provenance:
    """The wishes of whoever opened, and what was found.

    ``variables``: names of the variables that are joined, None = all; ``selections``: made of the arrays afterwards;
    ``structures``: gives what the scan found in each file; ``others``: gives arrays that no scan of a data file gave, such as
    those of other programs' indexes; ``saved``: the generation of each index file that holds this aggregation; ``how`` it was
    saved there.
    """

    rules: Rules = DEFAULT_RULES
    variables: tuple[str, ...] | None = None
    selections: tuple[Selection, ...] = ()
    access: Access = ANYWHERE
    structures: Callable[[], Sequence[Structure]] = _nothing
    others: Callable[[], Sequence[MasterArray]] = _nothing
    saved: dict[str, int] = field(default_factory=dict)
    how: Mapping[str, Any] = field(default_factory=dict)

    def sources(self, arrays: Sequence[MasterArray]) -> tuple[list[Structure], list[MasterArray]]:
        """Return what ``arrays`` were made of; those put together by hand are made of themselves."""
        structures, others = list(self.structures()), list(self.others())
        return structures, others if structures or others else list(arrays)

    def reaching(self, near: Iterable[str]) -> "Provenance":
        """Return the provenance with more that files may be read from, where no roots were given."""
        old = self.access.near
        if old is None or self.access.roots is not None or set(near) <= set(old):
            return self
        return replace(self, access=replace(self.access, near=tuple(dict.fromkeys([*old, *near]))))

    def selected(self, selection: Selection) -> "Provenance":
        """Return the provenance of what a selection leaves."""
        return replace(self, selections=(*self.selections, selection), saved=dict(self.saved))

    def kept(self, arrays: Iterable[MasterArray]) -> tuple[MasterArray, ...]:
        """Return the arrays that all selections leave."""
        return tuple(a for a in arrays if all(s.fits(a) for s in self.selections))
