"""Numbers of the files of an index that is being saved.

Files of another index are columns (`Files`), which are numbered and written without a text for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.index.indexed_files import Files
from aggarray.index.uris import written
from aggarray.memory.texts import Texts

#: Number of files whose references are made at a time.
_BLOCK = 1 << 16
#: Most runs of files of one kind in a block that are written one by one.
_FEW_RUNS = 16


class FileNumbers:
    """Files in the order of their first use, each once.

    The files of the first index that is met are numbered by their rows there, all others by their URIs.
    """

    def __init__(self) -> None:
        self._count = 0
        self._texts: dict[str, int] = {}
        self._base: Files | None = None
        #: Number of each file of the base, -1 for those without.
        self._numbers = np.zeros(0, np.int64)
        self._known: dict[int, tuple[Sequence[str], np.ndarray]] = {}

    def __len__(self) -> int:
        return self._count

    def of(self, uris: Sequence[str]) -> np.ndarray:
        """Return the number of each URI; new files are added.

        >>> numbers = FileNumbers()
        >>> numbers.of(["/b", "/a", "/b"]).tolist(), numbers.of(["/a", "/c"]).tolist(), len(numbers)
        ([0, 1, 0], [1, 2], 3)
        """
        if id(uris) not in self._known:
            if isinstance(uris, Files) and self._base is None:
                self._set_base(uris.origin)
            rows = uris.numbers_in(self._base) if isinstance(uris, Files) and self._base is not None else None
            if rows is None:
                codes = self._of_texts(uris)
            else:
                codes, others = np.empty(len(rows), np.int64), np.flatnonzero(rows < 0)
                codes[rows >= 0] = self._of_rows(rows[rows >= 0])
                codes[others] = self._of_texts([uris[row] for row in others.tolist()])
            self._known[id(uris)] = uris, codes
        return self._known[id(uris)][1]

    def _set_base(self, base: Files) -> None:
        self._base, self._numbers = base, np.full(len(base), -1, np.int64)
        for uri, row in base.rows_of(self._texts).items() if self._texts else ():
            self._numbers[row] = self._texts[uri]

    def _of_rows(self, rows: np.ndarray) -> np.ndarray:
        new = rows[self._numbers[rows] < 0]
        self._numbers[new] = self._count + np.arange(len(new))
        self._count += len(new)
        return np.asarray(self._numbers[rows])

    def _of_texts(self, uris: Sequence[str]) -> np.ndarray:
        texts, numbers = list(map(str, uris)), self._texts
        if self._base is not None:
            for uri, row in self._base.rows_of({uri for uri in texts if uri not in numbers}).items():
                numbers[uri] = int(self._of_rows(np.array([row]))[0])
        for uri in texts:
            if numbers.setdefault(uri, self._count) == self._count:
                self._count += 1
        return np.fromiter(map(numbers.__getitem__, texts), np.int64, len(texts))

    def some(self, numbers: np.ndarray) -> list[str]:
        """Return the files of some numbers."""
        wanted = dict.fromkeys(numbers.tolist(), "")
        named = zip(self._texts.values(), self._texts.keys(), strict=True)
        wanted |= {number: uri for number, uri in named if number in wanted}
        rows = np.flatnonzero(np.isin(self._numbers, numbers))
        if self._base is not None:
            wanted |= dict(zip(self._numbers[rows].tolist(), self._base.take(rows), strict=True))
        return list(wanted.values())

    def _blocks(self) -> Iterator[Files | list[str]]:
        rows = np.full(self._count, -1, np.int64)
        used = np.flatnonzero(self._numbers >= 0)
        rows[self._numbers[used]] = used
        texts = {number: uri for uri, number in self._texts.items()}
        for first in range(0, self._count, _BLOCK):
            part = rows[first : first + _BLOCK]
            cuts = (np.flatnonzero(np.diff(part >= 0)) + 1).tolist()
            for start, stop in pairwise([0, *cuts, len(part)] if len(cuts) <= _FEW_RUNS else [0, len(part)]):
                run = part[start:stop]
                if self._base is not None and (run >= 0).all():
                    yield self._base.take(run)
                else:
                    uris: Any = [] if self._base is None else iter(self._base.take(run[run >= 0]))
                    yield [texts[first + start + i] if row < 0 else next(uris) for i, row in enumerate(run.tolist())]

    def references(self, folder: str, relative: bool) -> Texts:
        """Return the URI references of all files, as `written` returns them."""
        return Texts.joined([_written(block, folder, relative) for block in self._blocks()])


def _written(files: Files | list[str], folder: str, relative: bool) -> Texts:
    """Return the URI references of some files."""
    if isinstance(files, Files):
        from aggarray.index.moved_references import moved_references

        moved = moved_references(files, folder, relative)
        if moved is not None:
            return moved
    return Texts.of(written(list(files), folder, relative))
