"""Join of new files with the joined arrays of an index.

The arrays of an index are joined with those of new files as series are (`aggregate.series_join`): only if that equals the join
of all files. Otherwise the files of the index are joined again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aggarray.aggregate.identity import is_mapping
from aggarray.aggregate.rules import FACETS, Skipped
from aggarray.aggregate.stages import Entry
from aggarray.arrays.master import MasterArray
from aggarray.opening.entries import FileArrays
from aggarray.opening.joining import Sources, join_arrays
from aggarray.opening.provenance import Outcome, Provenance
from aggarray.partition.matrix import Matrix
from aggarray.scan.structure_table import StructureTable


class _FilesNeededError(Exception):
    """Raised where the join depends on the arrays of the files of an index."""


def _need_files() -> list[Entry]:
    raise _FilesNeededError


def is_continuable(present: Outcome, provenance: Provenance) -> bool:
    """Return whether the arrays of an index stand for the arrays of its files."""
    rules = provenance.rules
    # A partial index has files, but no arrays.
    if not present.arrays or present.duplicates or provenance.selections:
        return False
    if rules.order or rules.versions is not None:
        return False
    if rules.new_dimension is not None or rules.units or rules.directions or rules.forecast_cubes:
        return False
    # Other refusals divide arrays that new files may join anew.
    facets = {*FACETS, *rules.separate_by}
    return all(r.rule in facets for r in present.refusals) and all(map(_is_series, present.arrays))


def _is_series(array: MasterArray) -> bool:
    """Return whether an array consists of whole files alike, each used once."""
    if type(array) is not MasterArray or not _covers_files(array._matrix):
        return False
    return all(_covers_files(c._matrix) and (c._known is not None or is_mapping(c)) for c in array.coords.values())


def _covers_files(matrix: Matrix) -> bool:
    references, refs = matrix.references, matrix.refs
    if sum(n > 1 for n in matrix.cells) > 1 or matrix.parts.starts or matrix.parts.steps or (refs < 0).any():
        return False
    uris, templates = references.uri[refs], references.template[refs]
    if (templates != templates[0]).any() or references.templates[templates[0]].declared:
        return False
    return bool((uris >= 0).all() and (np.bincount(uris) <= 1).all())


def continued(present: Outcome, provenance: Provenance, new: Sources, skipped: Sequence[Skipped]) -> Outcome | None:
    """Return the arrays of an index joined with those of new files.

    None if this may differ from the join of all files. ``skipped``: what is unusable in the files of the index.
    """
    entries = [Entry(array, number, _need_files) for number, array in enumerate(present.arrays)]
    unusable = [*skipped, *new.skipped]
    if new.structures:
        table = new.structures if isinstance(new.structures, StructureTable) else StructureTable(new.structures)
        if provenance.fixes:
            from aggarray.opening.fixing import repaired_structures

            table = StructureTable(repaired_structures(table, provenance.fixes, provenance.access))
        made = FileArrays(table, provenance.access, set(), new.tables, len(entries))
        entries += made.entries(provenance.rules, unusable)
    try:
        outcome = join_arrays(entries, sorted(dict.fromkeys(unusable), key=lambda s: s.file), provenance)
    except _FilesNeededError:
        return None
    return None if outcome.duplicates else outcome
