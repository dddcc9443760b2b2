"""Arrays of scanned files that are joined: of series, and single ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from aggarray.aggregate.rules import Rules, Skipped
from aggarray.aggregate.stages import Entry
from aggarray.aggregate.variables import arrays_of
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import replace
from aggarray.formats.base import Structure
from aggarray.scan.structure_table import StructureTable
from aggarray.storage.access import Access

if TYPE_CHECKING:
    from aggarray.aggregate.series import JoinedSeries
    from aggarray.partition.stored_sizes import ChunkIndexes

#: Numbers of the arrays of one file; those of the next file begin after them.
_STRIDE = 1 << 20


class FileArrays:
    """Arrays of files.

    ``left_out``: (array, file) of arrays that are not offered; ``tables``: chunk indexes of the files.
    """

    def __init__(
        self,
        structures: Sequence[Structure],
        access: Access,
        left_out: set[tuple[str, str]],
        tables: ChunkIndexes | None,
        first: int,
    ) -> None:
        self._structures, self._access, self._left_out = structures, access, left_out
        self._tables, self._first = tables, first

    def entries(self, rules: Rules, skipped: list[Skipped]) -> Iterator[Entry]:
        """Yield the arrays in the order of the files; append what is unusable."""
        series = self._series(rules)
        of_row = np.full(len(self._structures), -1, np.int32)
        for number, one in enumerate(series):
            of_row[one.rows] = number
        begun = set[int]()
        for row, number in enumerate(of_row.tolist()):
            if number < 0:
                yield from self._single(row, skipped)
                continue
            one = series[number]
            if len(one.joined) < one.count:
                yield from (e for e in self._single(row, skipped) if e.number % _STRIDE not in one.joined)
            else:
                skipped += [Skipped(one.uri(row), *odd) for odd in one.skipped]
            if number not in begun:
                begun.add(number)
                yield from self._joined(one)

    def _series(self, rules: Rules) -> list[JoinedSeries]:
        if not isinstance(self._structures, StructureTable) or len(self._structures) < 2:
            return []
        from aggarray.aggregate.series import find_series

        left_out = {uri for _, uri in self._left_out}
        return list(find_series(self._structures, rules, self._access, self._tables, left_out))

    def _single(self, row: int, skipped: list[Skipped] | None = None) -> Iterator[Entry]:
        """Yield the arrays of one file."""
        structure = self._structures[row]
        arrays, odd = arrays_of(structure, self._access)
        if structure.external_files:
            from aggarray.opening.virtual import with_sources

            arrays, lost = with_sources(arrays, structure, self._access)
            odd = [*odd, *lost]
        if skipped is not None:
            skipped += [Skipped(structure.uri, variable, reason) for variable, reason in odd]
        for number, array in enumerate(arrays, (self._first + row) * _STRIDE):
            if (array.name or "", structure.uri) not in self._left_out:
                yield Entry(self._with_tables(array), number)

    def _with_tables(self, array: MasterArray) -> MasterArray:
        if self._tables is None:
            return array

        def changed(a: MasterArray) -> MasterArray:
            return replace(a, _matrix=replace(a._matrix, references=replace(a._matrix.references, tables=self._tables)))

        return replace(changed(array), coords={name: changed(c) for name, c in array.coords.items()})

    def _joined(self, series: JoinedSeries) -> Iterator[Entry]:
        """Yield the joined arrays of a series, with the arrays of its files."""
        first = min(series.rows, key=series.uri)
        made: dict[int, list[Entry]] = {}

        def members(position: int) -> list[Entry]:
            if position not in made:
                made.update({n: [] for n in series.joined})
                for row in sorted(series.rows):
                    for entry in self._single(row):
                        if entry.number % _STRIDE in made:
                            made[entry.number % _STRIDE].append(entry)
            return made.pop(position)

        for position, array in sorted(series.joined.items()):
            number = (self._first + first) * _STRIDE + position
            yield Entry(array, number, lambda position=position: members(position), series.values)  # type: ignore[misc]
