"""Collection of the sub-arrays of several arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.partition.matrix import References, Template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aggarray.partition.stored_sizes import ChunkIndexes


class ReferenceBuilder:
    """Collects sub-arrays into `References` without duplicate templates.

    The files of the first index stay columns, without a text for each. Until `build`, the code of a file is its row there; -1
    means memory, and -2 - t is text t.
    """

    def __init__(self) -> None:
        self._files: Any = None
        self._texts: dict[str, int] = {}
        #: By code: the stamp of a file, and the number of what was read of it.
        self._stamps: dict[int, np.ndarray] = {}
        self._numbers: dict[int, int] = {}
        self._known: list[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]] = []
        self._tables: ChunkIndexes | None = None
        self._variables: dict[str, int] = {}
        self._templates: dict[Template, int] = {}
        self._seen: dict[int, tuple[Template, int]] = {}
        self._memory: list[np.ndarray] = []
        self._rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._external: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._single: list[tuple[int, int, int]] = []
        self._length = 0

    def _template(self, template: Template) -> int:
        # An id is cheaper to look up than the hash of a template; the pair keeps the object alive, so that its id stays valid.
        entry = self._seen.get(id(template))
        if entry is None:
            entry = (template, self._templates.setdefault(template, len(self._templates)))
            self._seen[id(template)] = entry
        return entry[1]

    def add(self, template: Template, uri: str | None, variable: str | np.ndarray) -> int:
        """Add a sub-array, ``uri`` None and values in memory; return its row."""
        if isinstance(variable, str):
            name = self._variables.setdefault(variable, len(self._variables))
            code = -2 - self._texts.setdefault(str(uri), len(self._texts))
        else:
            self._memory.append(variable)
            code, name = -1, len(self._memory) - 1
        self._single.append((code, name, self._template(template)))
        self._length += 1
        return self._length - 1

    def extend(self, other: References) -> int:
        """Add all sub-arrays of ``other``; return the row of its first."""
        if other.tables is not None:
            from aggarray.partition.stored_sizes import join_chunk_indexes

            self._tables = join_chunk_indexes(self._tables, other.tables)
        if len(other.template) == 1 and other.external is None:
            code, name, template = int(other.uri[0]), int(other.variable[0]), other.templates[int(other.template[0])]
            if code < 0:
                return self.add(template, None, other.memory[name])
            row = self.add(template, other.uris[code], other.variables[name])
            if other.stamps is not None:
                self._stamps[self._single[-1][0]] = other.stamps[code]
            if other.seen is not None and other.seen[code] >= 0:
                self._numbers[self._single[-1][0]] = other.seen[code]
            return row
        self._flush()
        uris = self._codes(other.uris)
        self._known.append((uris, other.stamps, other.seen))
        names = np.array([self._variables.setdefault(v, len(self._variables)) for v in other.variables], np.int32)
        templates = np.array([self._template(t) for t in other.templates], np.int32)
        in_memory = other.uri < 0
        variable = np.where(in_memory, other.variable + len(self._memory), 0).astype(np.int32)
        variable[~in_memory] = names[other.variable[~in_memory]]
        codes = np.full(len(other), -1, np.int32)
        codes[~in_memory] = uris[other.uri[~in_memory]]
        if other.external is not None:
            row, code, name = other.external.T
            self._external.append((row + self._length, uris[code], names[name]))
        self._memory.extend(other.memory)
        self._rows.append((codes, variable, templates[other.template]))
        self._length += len(other)
        return self._length - len(other)

    def _codes(self, uris: Sequence[str]) -> np.ndarray:
        """Return the codes of files."""
        are_distinct = getattr(uris, "are_distinct", None)  # of an index
        if self._files is None and are_distinct is not None and are_distinct():
            self._files = uris
        if uris is self._files:
            return np.arange(len(uris), dtype=np.int32)
        return np.array([-2 - self._texts.setdefault(uri, len(self._texts)) for uri in map(str, uris)], np.int32)

    def _flush(self) -> None:
        """Add what was collected singly to the columns."""
        if self._single:
            columns = np.array(self._single, np.int32).T
            self._rows.append((columns[0], columns[1], columns[2]))
            self._single = []
        for known, is_stamp in ((self._stamps, True), (self._numbers, False)):
            if known:
                codes, values = np.fromiter(known, np.int32, len(known)), np.array(list(known.values()), np.int64)
                self._known.append((codes, values, None) if is_stamp else (codes, None, values))
                known.clear()

    def build(self) -> References:
        """Return the collected sub-arrays."""
        self._flush()
        columns = [np.concatenate(c) for c in zip(*self._rows, strict=True)] if self._rows else [np.zeros(0, np.int32)] * 3
        uris, rows = self._numbered()

        def numbered(codes: np.ndarray) -> np.ndarray:
            texts = codes < -1
            if not texts.any():
                return codes
            result = codes.copy()
            result[texts] = rows[-2 - codes[texts]]
            return result

        stamps = seen = None
        for codes, own_stamps, numbers in self._known:
            codes = numbered(codes)
            if own_stamps is not None:
                stamps = np.full((len(uris), 3), -1, np.int64) if stamps is None else stamps
                stamps[codes] = own_stamps
            if numbers is not None and (numbers >= 0).any():
                seen = np.full(len(uris), -1, np.int64) if seen is None else seen
                seen[codes[numbers >= 0]] = numbers[numbers >= 0]
        external = None
        if self._external:
            from aggarray.partition.external import joined

            external = joined([np.stack([row, numbered(code), name], axis=-1) for row, code, name in self._external])
        shared = tuple(self._variables), tuple(self._templates), tuple(self._memory)
        files = numbered(columns[0])
        return References(uris, *shared, files, columns[1], columns[2], stamps, self._tables, seen, external)

    def _numbered(self) -> tuple[Sequence[str], np.ndarray]:
        """Return all files, and the number of each text among them."""
        if self._files is None:
            return tuple(self._texts), np.arange(len(self._texts), dtype=np.int32)
        files, there = self._files, self._files.rows_of(self._texts) if self._texts else {}
        new = {text: len(files) + number for number, text in enumerate(text for text in self._texts if text not in there)}
        rows = np.array([there.get(text, new.get(text, -1)) for text in self._texts], np.int32)
        return (files.extended(list(new)) if new else files), rows
