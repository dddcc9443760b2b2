"""What was an aggregation made of? Enough to make it again with more files, or by other rules, without opening the old ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aggarray.access import ANYWHERE, Access
from aggarray.aggregate.rules import Rules
from aggarray.formats.base import Structure
from aggarray.master import MasterArray

DEFAULT_RULES = Rules()


def _nothing() -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True, eq=False)
class Provenance:
    """The wishes of whoever opened, and what was found.

    ``structures``: gives what the scan found in each file; ``others``: gives arrays that no scan of a data file gave, such as
    those of other programs' indexes; ``saved``: the generation of each index file that holds this aggregation.
    """

    rules: Rules = DEFAULT_RULES
    variables: tuple[str, ...] | None = None
    access: Access = ANYWHERE
    structures: Callable[[], Sequence[Structure]] = _nothing
    others: Callable[[], Sequence[MasterArray]] = _nothing
    saved: dict[str, int] = field(default_factory=dict)

    def sources(self, arrays: Sequence[MasterArray]) -> tuple[list[Structure], list[MasterArray]]:
        """Return what ``arrays`` were made of; those put together by hand are made of themselves."""
        structures, others = list(self.structures()), list(self.others())
        return structures, others if structures or others else list(arrays)

    def of(self, arrays: Sequence[MasterArray], repeats: Mapping[str, Sequence[str]]) -> "Provenance":
        """Return the provenance of some of the arrays: their files and names alone; ``repeats``: {name: files left out}."""
        names = tuple(dict.fromkeys(a.name or "" for a in arrays))
        files = {uri for a in arrays for item in (a, *a.coords.values()) for uri in item._matrix.references.uris}
        files.update(uri for name in names for uri in repeats.get(name, ()))
        structures, others = self.structures, self.others
        return replace(
            self,
            variables=names,
            structures=lambda: [s for s in structures() if s.uri in files],
            others=lambda: [a for a in others() if a.name in names],
            saved={},
        )
