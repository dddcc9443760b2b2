"""Files of an index: columns of URI references, resolved lazily."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from aggarray.index.uris import NOWHERE, PathMap, resolve_uri
from aggarray.memory.texts import Texts
from aggarray.storage import relocated
from aggarray.storage.urls import RELOCATE, is_remote

#: Most references that are kept resolved.
_MOST_KNOWN = 1 << 14
#: References that are resolved one by one before all are.
_FEW_KNOWN = 16
_UP = r"^(?:\.\./)*"


class Files(Sequence[str]):
    """Files of an index: references, resolved lazily.

    ``numbers``: their numbers in `base`, None for all.
    """

    __slots__ = ("_earlier", "_folder", "_is_plain", "_known", "_part_of", "_path_map", "numbers", "references")

    def __init__(
        self,
        references: Sequence[str],
        folder: str,
        path_map: PathMap,
        part_of: Files | None = None,
        numbers: np.ndarray | range | None = None,
    ) -> None:
        self.references, self._folder, self._path_map = references, folder, path_map
        self._part_of, self.numbers = part_of, numbers
        self._earlier: Files | None = None  # the files that these extend
        #: Resolved references by number: a read needs each several times.
        self._known: dict[int, str] = {}
        self._is_plain: bool | None = None

    @property
    def base(self) -> Files:
        """The files that these are a part of, or these."""
        return self if self._part_of is None else self._part_of

    def numbers_of(self, rows: Any) -> Any:
        """Return the numbers in `base` of one of the files, or of several."""
        if isinstance(self.numbers, range):
            return rows + self.numbers.start
        return rows if self.numbers is None else self.numbers[rows]

    def take(self, rows: Sequence[int] | np.ndarray) -> Files:
        """Return some of the files; ``rows``: in this order.

        A range shares the columns.
        """
        if isinstance(rows, range) and isinstance(self.references, Texts):
            first = 0 if self.numbers is None else self.numbers.start if isinstance(self.numbers, range) else None
            if first is not None:
                numbers: np.ndarray | range = range(first + rows.start, first + rows.stop)
                return self._part(self.references.take(slice(rows.start, rows.stop)), numbers)
        rows, texts = np.asarray(rows, np.int64), self.references
        references = texts.take(rows) if isinstance(texts, Texts) else [texts[row] for row in rows.tolist()]
        return self._part(references, self.numbers_of(rows))

    def _part(self, references: Sequence[str], numbers: np.ndarray | range) -> Files:
        taken = Files(references, self._folder, self._path_map, self.base, numbers)
        taken._is_plain = self._is_plain or None
        return taken

    def __len__(self) -> int:
        return len(self.references)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            return [self[i] for i in range(len(self))[item]]
        if (known := self._known.get(item)) is not None:
            return known
        if len(self._known) == _FEW_KNOWN and len(self) <= _MOST_KNOWN and self.are_plain():
            # A read of many files: together they are resolved sooner.
            self._known = dict(enumerate(self._all_resolved()))
        elif len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        known = self._known[item] = self._known.get(item) or self._resolved(self.references[item])
        return known

    def _resolved(self, reference: str) -> str:
        return relocated(resolve_uri(self._path_map.applied(reference) if self._path_map.pairs else reference, self._folder))

    def __iter__(self) -> Iterator[str]:
        if len(self) > _MOST_KNOWN:
            return self._all_resolved()
        if len(self._known) < len(self):
            self._known = dict(enumerate(self._all_resolved()))
        return map(self._known.__getitem__, range(len(self)))

    def _all_resolved(self) -> Iterator[str]:
        if not self.are_plain():
            return map(self._resolved, self.references)
        # Each folder is resolved once.
        folder = functools.cache(lambda head: resolve_uri(f"{head}-", self._folder)[:-1])
        return (folder(head + slash) + tail for head, slash, tail in (r.rpartition("/") for r in self.references))

    def rows_of(self, paths: Collection[str]) -> dict[str, int]:
        """Return the rows of those of the given paths that are among the files.

        >>> Files(Texts.of(["a.nc", "b/a.nc"]), "/data", NOWHERE).rows_of(["/data/b/a.nc", "/a.nc"])
        {'/data/b/a.nc': 1}
        """
        files, rows = self, np.arange(len(self))
        if isinstance(self.references, Texts) and self.are_plain():
            rows = self.references.possibly_ending_with({os.fsencode(path.rpartition("/")[2]) for path in paths})
            files = self.take(rows)
        paths = paths if isinstance(paths, set | frozenset | dict) else set(paths)
        return {path: int(row) for path, row in zip(files, rows, strict=True) if path in paths}

    def least(self) -> str:
        """Return the first of the files in the order of texts."""
        texts = self.references
        if isinstance(texts, Texts) and not is_remote(self._folder) and self.are_plain() and texts.is_plain():
            # Resolving puts the same before all of them, and changes none otherwise.
            lead, absolute = re.findall(_UP, texts[0])[0], texts.start_with("/")
            led = texts.start_with(lead).all() if lead else not texts.start_with(".").any()
            in_order = led and (absolute.all() or not absolute.any())
            if in_order and texts.buffer_count("/.") == len(self) * max(0, len(lead) // 3 - 1) and not texts.buffer_count("//"):
                return str(self[texts.least()])
        return min(self)

    def are_distinct(self) -> bool:
        """Return whether no two references are equal, as far as columns show it."""
        return isinstance(self.references, Texts) and len(self.references.distinct()[0]) == len(self)

    def extended(self, paths: Sequence[str]) -> Sequence[str]:
        """Return these files and others, as columns if the others are plain paths.

        >>> list(Files(Texts.of(["a.nc"]), "/data", NOWHERE).extended(["/b.nc"]))
        ['/data/a.nc', '/b.nc']
        """
        texts = self.references
        if not isinstance(texts, Texts) or self._path_map.pairs or RELOCATE in os.environ:
            return (*self, *paths)
        if any("%" in path or ":" in path or resolve_uri(path, self._folder) != path for path in paths):
            return (*self, *paths)
        files = Files(Texts.chained(texts, Texts.of(paths)), self._folder, NOWHERE)
        files._earlier = self
        return files

    @property
    def origin(self) -> Files:
        """The files of the index from which these come."""
        return self.base if self._earlier is None else self._earlier.origin

    def number_in(self, origin: Files, row: int) -> int | None:
        """Return the number of one of the files, as `numbers_in` does."""
        if self._earlier is not None and row < len(self._earlier):
            return self._earlier.number_in(origin, row)
        if self.origin is not origin:
            return None
        return int(self.numbers_of(row)) if self._earlier is None else origin.rows_of([self[row]]).get(self[row], -1)

    def numbers_in(self, origin: Files) -> np.ndarray | None:
        """Return numbers among the files of an index, -1 for others, or None."""
        if self.origin is not origin:
            return None
        if self._earlier is None:
            return np.asarray(self.numbers_of(np.arange(len(self))))
        added = [self[row] for row in range(len(self._earlier), len(self))]
        rows, earlier = origin.rows_of(added), self._earlier.numbers_in(origin)
        return np.concatenate([earlier, np.array([rows.get(uri, -1) for uri in added], np.int64)])

    def are_plain(self) -> bool:
        """Return whether the last component of each reference is kept as it is."""
        if self._is_plain is None:
            references = self.references
            if isinstance(references, Texts):
                is_plain = not any(map(references.buffer_has, "%:")) and not references.end_with_one_of("/.")
            else:
                text = "\n".join(["", *references, ""])
                is_plain = not any(part in text for part in ("\n\n", "/\n", ".\n", "%", ":"))
            self._is_plain = is_plain and not self._path_map.pairs
        return self._is_plain and RELOCATE not in os.environ

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return tuple, (list(self),)
