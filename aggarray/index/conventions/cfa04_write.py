"""Writer of the aggregation variables of CFA-0.4.

CFA-0.4 cannot express values in memory, or values that are converted (`to_units`, `astype`, a packed aggregation variable); the
reason is returned. Missing partitions are omitted and read as holes.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aggarray.arrays import MasterArray
from aggarray.cf.encoding import default_fill
from aggarray.index.container import Container, ReferencesOf
from aggarray.index.conventions.cfa04_parts import part_text
from aggarray.index.uris import is_url
from aggarray.partition.matrix import Matrix, Template
from aggarray.partition.plan import part_of
from aggarray.partition.tiling import rename


@dataclass(frozen=True, slots=True, eq=False)
class ScalarVariable:
    """A scalar variable of the dtype of its array; its value is not used."""

    name: str
    dtype: np.dtype[Any]
    attrs: Mapping[str, Any]


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


def aggregation_variable(array: MasterArray, folder: str | None) -> ScalarVariable:
    """Return the variable of an array; ``folder``: the base of relative file names, or None.

    The file needs ``CFA-0.4`` among its Conventions, and the dimensions that ``cfa_dimensions`` lists.
    """
    partitions = array.partitions
    text = {
        "pmdimensions": list(partitions.dimensions),
        "pmshape": list(partitions.shape),
        "base": "",
        "Partitions": list(_partitions(array._matrix, folder)),
    }
    attrs: dict[str, Any] = dict(array.attrs)
    attrs |= {k: v for k, v in (("units", array.units), ("calendar", array.calendar)) if v is not None}
    if array.dtype.kind in "iu" and array.fill_value != default_fill(array.dtype):
        attrs["_FillValue"] = array.dtype.type(array.fill_value)
    aggregation = {"cf_role": "cfa_variable", "cfa_dimensions": " ".join(array.dimensions), "cfa_array": json.dumps(text)}
    return ScalarVariable(str(array.name), array.dtype, {**attrs, **aggregation})


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
        partition: dict[str, Any] = {
            "index": [cell[d] for d in varying],
            "location": [[int(e[i]), int(e[i + 1]) - 1] for e, i in bounds],
        }
        variable = matrix.references.variables[int(matrix.references.variable[ref])]
        sub = {**texts[number][1], "file": files[code], "ncvar": variable}
        extents = {d: b - a + 1 for d, (a, b) in zip(matrix.dimensions, partition["location"], strict=True)}
        if not cut and all(extents.get(d, 1) == n for d, n in zip(template.dimensions, template.shape, strict=True)):
            yield {**partition, **texts[number][0], "subarray": sub}  # all of the sub-array, the common case
            continue
        part = part_of(matrix, cell, template)
        if any(not isinstance(p, slice) or p != slice(0, n, 1) for p, n in zip(part, template.shape, strict=True)):
            partition["part"] = part_text(part)
        yield {**partition, **texts[number][0], "subarray": sub}


def _common_keys(template: Template, matrix: Matrix) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keys that partitions of a template have in common, and those of their sub-arrays."""
    forward = dict(zip(matrix.dimensions, matrix.directions, strict=True))
    own = zip(template.dimensions, template.directions, strict=True)
    against = [d for d, direction in own if direction != forward.get(d, direction)]
    partition: dict[str, Any] = {}
    if template.dimensions != matrix.dimensions:
        partition["pdimensions"] = list(template.dimensions)
    if against:
        partition["reverse"] = against
    if template.units is not None:
        partition["punits"] = template.units
    if template.calendar is not None:
        partition["pcalendar"] = template.calendar
    sub: dict[str, Any] = {"shape": list(template.shape)}
    if not template.declared:
        dtype = template.encoding.dtype
        sub["format"] = "netCDF" if "netCDF" in template.format else template.format
        sub["dtype"] = "str" if dtype.kind == "T" else dtype.name
    return partition, sub


class CFA04(Container):
    """A file of CFA-0.4 variables. ``folder``: the base of relative file names, or None."""

    name = "CFA-0.4"
    conventions = f"CF-1.8 {name}"

    def __init__(self, dataset: Any, references: ReferencesOf, folder: str | None) -> None:
        super().__init__(dataset, references)
        self._folder = folder

    def reason(self, array: MasterArray) -> str | None:
        """Return why CFA-0.4 cannot express an array, None if it can."""
        return inexpressible(array)

    def aggregated(self, array: MasterArray, name: str, dimensions: Sequence[str]) -> Any:
        """Write the scalar variable whose attributes locate the partitions."""
        # The convention uses the names of the dimensions in this file.
        names = dict(zip(array.dimensions, dimensions, strict=True))
        written = aggregation_variable(replace(array, _matrix=rename(array._matrix, names)), self._folder)
        attrs = dict(written.attrs)
        variable = self.variable(name, array.dtype, (), attrs.pop("_FillValue", None))
        variable.setncatts({k: attrs[k] for k in ("cf_role", "cfa_array")} | {"cfa_dimensions": " ".join(dimensions)})
        return variable
