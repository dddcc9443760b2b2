"""Collection of the sub-arrays of several arrays."""

from typing import TYPE_CHECKING

import numpy as np

from aggarray.partition.matrix import References, Template

if TYPE_CHECKING:
    from aggarray.partition.stored_sizes import ChunkIndexes


class ReferenceBuilder:
    """Collects sub-arrays into `References` without duplicate templates."""

    def __init__(self) -> None:
        self._uris: dict[str, int] = {}
        self._stamps: dict[int, np.ndarray] = {}
        self._numbers: dict[int, int] = {}
        self._tables: ChunkIndexes | None = None
        self._variables: dict[str, int] = {}
        self._templates: dict[Template, int] = {}
        self._seen: dict[int, tuple[Template, int]] = {}
        self._memory: list[np.ndarray] = []
        self._rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
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
            code = self._uris.setdefault(str(uri), len(self._uris))
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
        if len(other.template) == 1:
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
        uris = np.array([self._uris.setdefault(u, len(self._uris)) for u in other.uris], np.int32)
        if other.stamps is not None:
            self._stamps.update(zip(uris.tolist(), other.stamps, strict=True))
        if other.seen is not None:
            self._numbers.update((u, n) for u, n in zip(uris.tolist(), other.seen.tolist(), strict=True) if n >= 0)
        names = np.array([self._variables.setdefault(v, len(self._variables)) for v in other.variables], np.int32)
        templates = np.array([self._template(t) for t in other.templates], np.int32)
        in_memory = other.uri < 0
        variable = np.where(in_memory, other.variable + len(self._memory), 0).astype(np.int32)
        variable[~in_memory] = names[other.variable[~in_memory]]
        codes = np.full(len(other), -1, np.int32)
        codes[~in_memory] = uris[other.uri[~in_memory]]
        self._memory.extend(other.memory)
        self._rows.append((codes, variable, templates[other.template]))
        self._length += len(other)
        return self._length - len(other)

    def _flush(self) -> None:
        if self._single:
            columns = np.array(self._single, np.int32).T
            self._rows.append((columns[0], columns[1], columns[2]))
            self._single = []

    def build(self) -> References:
        """Return the collected sub-arrays."""
        self._flush()
        columns = [np.concatenate(c) for c in zip(*self._rows, strict=True)] if self._rows else [np.zeros(0, np.int32)] * 3
        shared = tuple(self._uris), tuple(self._variables), tuple(self._templates), tuple(self._memory)
        stamps = seen = None
        if self._stamps:
            stamps = np.full((len(self._uris), 3), -1, np.int64)
            stamps[list(self._stamps)] = list(self._stamps.values())
        if self._numbers:
            seen = np.full(len(self._uris), -1, np.int64)
            seen[list(self._numbers)] = list(self._numbers.values())
        return References(*shared, columns[0], columns[1], columns[2], stamps, self._tables, seen)
