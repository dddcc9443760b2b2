"""Writer of the aggregation variables of CFA-0.4.

CFA-0.4 cannot express values in memory, or values that are converted (`to_units`, `astype`, a packed aggregation variable); the
reason is returned. Missing partitions are omitted and read as holes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.cf.encoding import default_fill
from aggarray.dataclass import replace
from aggarray.index.container import Container, ReferencesOf
from aggarray.index.uris import is_url
from aggarray.partition.matrix import Matrix, Template
from aggarray.partition.plan import part_of
from aggarray.partition.tiling import rename


def inexpressible(array: MasterArray) -> str | None:
    """Return why CFA-0.4 cannot express an array, None if it can."""
    references = array._matrix.compact().references
    if (references.uri < 0).any():
        return "some of its values are in memory, which CFA-0.4 cannot express: save it as CF-1.13"
    if any(t.steps for t in references.templates):
        return "its values are converted, which CFA-0.4 cannot express: save it as CF-1.13, or before converting it"
    if not array.name:
        return "it has no name, which a variable needs"
    return None


def aggregation_attributes(array: MasterArray, folder: str | None) -> dict[str, str]:
    """Return the attributes that locate partitions, relative to ``folder``."""
    shape = {"pmdimensions": list(array.partitions.dimensions), "pmshape": list(array.partitions.shape)}
    text = json.dumps({**shape, "base": "", "Partitions": list(_partitions(array._matrix, folder))})
    return {"cf_role": "cfa_variable", "cfa_array": text, "cfa_dimensions": " ".join(array.dimensions)}


def _partitions(matrix: Matrix, folder: str | None) -> Iterator[dict[str, Any]]:
    """Yield a JSON object for each partition that is not missing."""
    varying = [d for d, n in enumerate(matrix.cells) if n > 1]
    texts = [_common_keys(t, matrix) for t in matrix.references.templates]
    files: dict[int, str] = {}
    cut = bool(matrix.parts.starts or matrix.parts.steps)
    for row in np.flatnonzero(matrix.refs >= 0).tolist():
        cell = tuple(int(i) for i in np.unravel_index(row, matrix.cells)) if matrix.cells else ()
        ref = int(matrix.refs[row])
        number, code = int(matrix.references.template[ref]), int(matrix.references.uri[ref])
        if code not in files:
            uri = str(matrix.references.uri_of(ref))
            files[code] = uri if folder is None or is_url(uri) else os.path.relpath(uri, folder)
        template = matrix.references.templates[number]
        bounds = zip(matrix.edges, cell, strict=True)
        location = [[int(e[i]), int(e[i + 1]) - 1] for e, i in bounds]
        partition: dict[str, Any] = {"index": [cell[d] for d in varying], "location": location}
        variable = matrix.references.variables[int(matrix.references.variable[ref])]
        sub = {**texts[number][1], "file": files[code], "ncvar": variable}
        extents = {d: b - a + 1 for d, (a, b) in zip(matrix.dimensions, location, strict=True)}
        if not cut and all(extents.get(d, 1) == n for d, n in zip(template.dimensions, template.shape, strict=True)):
            yield {**partition, **texts[number][0], "subarray": sub}  # all of the sub-array, the common case
            continue
        part = part_of(matrix, cell, template)
        if any(not isinstance(p, slice) or p != slice(0, n, 1) for p, n in zip(part, template.shape, strict=True)):
            partition["part"] = part_text(part)
        yield {**partition, **texts[number][0], "subarray": sub}


def part_text(part: Sequence[slice | np.ndarray]) -> str:
    """Return a part as CFA-0.4 writes it.

    >>> part_text([slice(2, 7, 2), np.array([0, 3])])
    '[[2, 6, 2], (0, 3)]'
    """
    items = ([int(p.start), int(p.stop) - 1, int(p.step)] if isinstance(p, slice) else tuple(p.tolist()) for p in part)
    return f"[{', '.join(map(str, items))}]"


def _common_keys(template: Template, matrix: Matrix) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the common keys of partitions, and those of their sub-arrays."""
    forward = dict(zip(matrix.dimensions, matrix.directions, strict=True))
    own = zip(template.dimensions, template.directions, strict=True)
    against = [d for d, direction in own if direction != forward.get(d, direction)]
    partition: dict[str, Any] = {}
    if template.dimensions != matrix.dimensions:
        partition["pdimensions"] = list(template.dimensions)
    if against:
        partition["reverse"] = against
    partition |= {k: v for k, v in (("punits", template.units), ("pcalendar", template.calendar)) if v is not None}
    sub: dict[str, Any] = {"shape": list(template.shape)}
    if not template.declared:
        dtype = template.encoding.dtype
        sub["format"] = "netCDF" if "netCDF" in template.format else template.format
        sub["dtype"] = "str" if dtype.kind == "T" else dtype.name
    return partition, sub


class CFA04(Container):
    """File of CFA-0.4 variables; ``folder``: base of relative file names."""

    name = "CFA-0.4"
    conventions = f"CF-1.8 {name}"
    reason = staticmethod(inexpressible)

    def __init__(self, dataset: Any, references: ReferencesOf, folder: str | None) -> None:
        super().__init__(dataset, references)
        self._folder = folder

    def aggregated(self, array: MasterArray, name: str, dimensions: Sequence[str]) -> Any:
        """Write the scalar variable whose attributes locate the partitions."""
        # The convention uses the names of the dimensions in this file.
        renamed = rename(array._matrix, dict(zip(array.dimensions, dimensions, strict=True)))
        declared = array.dtype.kind in "iu" and array.fill_value != default_fill(array.dtype)
        variable = self.variable(name, array.dtype, (), array.dtype.type(array.fill_value) if declared else None)
        variable.setncatts(aggregation_attributes(replace(array, _matrix=renamed), self._folder))
        return variable
