"""Partial indexes, from which interrupted scans resume.

A partial index is an index without arrays. It is saved while files are scanned, at intervals that grow with its cost, and
removed once the scan and what follows succeed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from aggarray.aggregate.rules import Rules
from aggarray.dataclass import replace
from aggarray.errors import AggarrayError, MissingFileError
from aggarray.formats.base import Attributes, Structure
from aggarray.index import Opening
from aggarray.opening.joining import CHECKPOINT
from aggarray.opening.provenance import Outcome, Provenance
from aggarray.scan.structure_table import StructureTable
from aggarray.storage.urls import unsigned

#: Seconds from the start of a scan, and at least between two saves.
INTERVAL = 5.0
#: A save may take this fraction of the time since the last one.
SHARE = 0.02


class Checkpoint:
    """The partial index of a scan; ``note``: why there is none to resume from.

    A file of that name that is no index is kept, and the scan saves none.
    """

    def __init__(self, path: str, resume: bool) -> None:
        from aggarray.index.saving import may_be_replaced

        self.path, self.note = path, ""
        self._is_saved = not os.path.lexists(path) or may_be_replaced(path)
        self.reused = 0
        self._known: dict[str, int] = {}
        self._table = StructureTable()
        self._provenance: Provenance | None = None
        self._saved, self._wait = time.monotonic(), INTERVAL
        if not self._is_saved:
            self.note = f"{path} is not an index: it is kept, all files are scanned, and the scan cannot be resumed"
        elif resume:
            self._load()
        if not self._known:
            self.remove()

    def _load(self) -> None:
        from aggarray.index.loading import load
        from aggarray.storage.access import ANYWHERE

        try:
            self._table = load(self.path, Opening(ANYWHERE)).structures()
        except MissingFileError:
            self.note = f"no partial index {self.path}; all files are scanned"
        except AggarrayError as error:
            self.note = f"the partial index cannot be read, so all files are scanned: {error}"
        self._known = {uri: row for row, uri in enumerate(self._table.uris)}

    def recall(self, path: str, given: Attributes | None = None) -> Structure | None:
        """Return the structure of a file that is unchanged since it was scanned.

        ``given``: its attributes from a catalogue, which must be those of the scan.
        """
        from aggarray.opening.appending import has_changed

        row = self._known.get(unsigned(path))
        if row is None or has_changed(path, self._table.stamp(row)):
            return None
        structure = self._table[row]
        if structure.given or given:
            from aggarray.opening.catalogue import is_given_anew

            if is_given_anew(structure, given or {}):
                return None
        self.reused += 1
        return structure if structure.uri == path else replace(structure, uri=path)

    def update(self, table: StructureTable) -> None:
        """Save the partial index if it is time to."""
        now = time.monotonic()
        if self._is_saved and now - self._saved >= self._wait:
            self.save(table)
            self._saved = time.monotonic()
            self._wait = max(INTERVAL, (self._saved - now) / SHARE)

    def save(self, table: StructureTable) -> None:
        """Save the partial index atomically."""
        from aggarray.opening.persistence import save

        # An index does not store all of some files; assumed ones would be scanned to be saved.
        models = [variant.model for variant in table.variants]
        plain = {n for n, m in enumerate(models) if not (m.has_external_coordinates or m.external_files or m.assumed)}
        if len(plain) < len(models):
            table = table.take([row for row, number in enumerate(table.variant) if number in plain])
        saved = {} if self._provenance is None else self._provenance.saved
        self._provenance = Provenance(Rules(), structures=lambda: table, saved=saved)
        how = {"convention": "CF-1.13", "relative": True, "chunk_table": False}
        save(self.path, Outcome((), (), (), ()), self._provenance, how)

    def remove(self) -> None:
        """Remove the partial index."""
        if self._is_saved:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    @property
    def exists(self) -> bool:
        """Whether a partial index of this scan has been saved."""
        return self._is_saved and os.path.exists(self.path)


@contextlib.contextmanager
def checkpointing(path: str, resume: bool) -> Iterator[Checkpoint]:
    """Keep a partial index of the scans in a block until it succeeds."""
    from aggarray.scan.discovery import leaving_out

    checkpoint = Checkpoint(path, resume)
    token = CHECKPOINT.set(checkpoint)
    try:
        with leaving_out([path]):
            yield checkpoint
    finally:
        CHECKPOINT.reset(token)
