"""Provenance of an aggregation: what is needed to build it again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from aggarray.aggregate.rules import DEFAULT_RULES, FACETS, Duplicate, Refusal, Rules, Skipped
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import NamedTuple, dataclass, field, fields, replace
from aggarray.storage import relocated
from aggarray.storage.access import ANYWHERE, Access

if TYPE_CHECKING:
    from aggarray.formats.base import Structure
    from aggarray.index.record_columns import ContinuedRecords, RecordColumns
    from aggarray.opening.where import TextSelection
    from aggarray.scan.fixes import Fix
    from aggarray.scan.structure_table import StructureTable


def _nothing() -> tuple[()]:
    return ()


class IndexContents:
    """Structures or arrays of an index, read on the first call and kept.

    Another process reads them by ``address``, a function and its arguments. ``records``: reads structures as columns.
    """

    __slots__ = ("_items", "_read", "_records", "address")

    def __init__(
        self,
        read: Callable[[], Sequence[Any]],
        address: tuple[Callable[..., Sequence[Any]], tuple[Any, ...]],
        records: Callable[[], RecordColumns] | None = None,
    ) -> None:
        self._read, self.address = read, address
        self._records: Any = records
        self._items: Sequence[Any] | None = None

    def __call__(self) -> Sequence[Any]:
        """Return the items; an index that was saved over no longer has them."""
        if self._items is None:
            self._items = self._read()
        return self._items

    def records(self) -> ContinuedRecords | None:
        """Return structures as columns, read on the first call; None without."""
        from aggarray.index.record_columns import ContinuedRecords
        from aggarray.scan.structure_table import StructureTable

        if self._records is not None and not isinstance(self._records, ContinuedRecords):
            self._records = ContinuedRecords(self._records(), StructureTable())
        return self._records

    def __reduce__(self) -> tuple[Any, ...]:
        find, arguments = self.address
        return IndexContents, (partial(find, *arguments), self.address)


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A selection of arrays by ``names`` (None: any) and ``attributes``.

    Several values of an attribute select the arrays that have any of them.
    """

    names: tuple[str, ...] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def fits(self, array: MasterArray) -> bool:
        """Return whether an array is selected."""
        from aggarray.opening.selection import has_attributes

        return (self.names is None or array.name in self.names) and has_attributes(array, self.attributes)


@dataclass(frozen=True, slots=True, eq=False)
class Provenance:
    """The options of an aggregation and the structures that it was made of.

    ``variables``: names of the joined variables, None = all; ``selections``: applied to the joined arrays; ``structures``:
    returns the scanned structure of each file; ``others``: returns arrays without a scanned data file, such as those of indexes
    of other software; ``saved``: the generation of each index file that stores this aggregation; ``how``: its save options;
    ``fixes``: applied to the structures, which are as scanned.
    """

    rules: Rules = DEFAULT_RULES
    variables: tuple[str, ...] | None = None
    selections: tuple[Selection | TextSelection, ...] = ()
    access: Access = ANYWHERE
    structures: Callable[[], Sequence[Structure]] = _nothing
    others: Callable[[], Sequence[MasterArray]] = _nothing
    saved: dict[str, int] = field(default_factory=dict)
    how: Mapping[str, Any] = field(default_factory=dict)
    fixes: tuple[Fix, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the contents of an index as its address, others as they are."""
        contents = (self.structures, self.others)
        pickled = [items if isinstance(items, IndexContents) else list(items()) for items in contents]
        return _received, (
            *pickled,
            {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("structures", "others")},
        )

    def records(self) -> ContinuedRecords | None:
        """Return the structures as columns of an index, None if they are not."""
        find = getattr(self.structures, "records", None)
        return None if find is None else find()

    def sources(self, arrays: Sequence[MasterArray]) -> tuple[StructureTable, list[MasterArray]]:
        """Return structures and other arrays; ``arrays`` if there are neither."""
        from aggarray.scan.structure_table import StructureTable

        structures, others = self.structures(), list(self.others())
        table = structures if isinstance(structures, StructureTable) else StructureTable(structures)
        return table, others if len(table) or others else list(arrays)

    def separates(self, rule: str) -> bool:
        """Return whether a rule of refusals keeps different datasets apart."""
        return rule in FACETS or rule in self.rules.separate_by

    def reaching(self, near: Iterable[str]) -> Provenance:
        """Add readable locations, unless ``roots`` were given."""
        old = self.access.near
        if old is None or self.access.roots is not None or set(near) <= set(old):
            return self
        return replace(self, access=replace(self.access, near=tuple(dict.fromkeys([*old, *near]))))

    def of_arrays(self) -> Provenance:
        """Return the provenance of arrays that no longer equal their files."""
        return replace(self, structures=_nothing, others=_nothing, saved={}, how={})

    def selected(self, selection: Selection | TextSelection) -> Provenance:
        """Return the provenance of a selection."""
        return replace(self, selections=(*self.selections, selection), saved=dict(self.saved))


def _received(structures: Any, others: Any, options: dict[str, Any]) -> Provenance:
    if isinstance(structures, list):
        here = [replace(s, uri=relocated(s.uri)) for s in structures]
        return Provenance(**options, structures=lambda: here, others=lambda: others)
    return Provenance(**options, structures=structures, others=others)


class Listing(tuple[Any, ...]):
    """Tuple of refusals, skipped files or problems that prints as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        from aggarray.display.reprs import listing_text

        return listing_text(self)


class Outcome(NamedTuple):
    """Arrays, and what was not joined: the public fields of `Aggregation`."""

    arrays: tuple[MasterArray, ...]
    refusals: tuple[Refusal, ...]
    skipped: tuple[Skipped, ...]
    duplicates: tuple[Duplicate, ...]
