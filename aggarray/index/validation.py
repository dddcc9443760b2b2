"""Validation of the content of an index when it is opened.

Damaged or hostile content raises ValueError here, which `Reader.index_errors` converts to IndexFileError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.cf.encoding import Encoding, unpacked_dtype
from aggarray.cf.units.temperature import KINDS
from aggarray.partition.matrix import Matrix, Template, check_matrix

if TYPE_CHECKING:
    from aggarray.arrays.row_geometry import Geometry


def _is_text(*items: Any) -> bool:
    return all(item is None or isinstance(item, str) for item in items)


def check_array(array: MasterArray) -> None:
    """Raise ValueError for invalid parameters or coordinates of an array."""
    if not _is_text(array.name, array.units, array.calendar):
        raise ValueError("name, units or calendar is not text")
    fill = np.asarray(array.fill_value)
    if fill.ndim:
        raise ValueError("fill value is not a scalar")
    try:
        # As reads do: text that looks like a number is not a valid fill value.
        np.copyto(np.empty((), array.dtype), fill, casting="same_kind")
    except TypeError as error:
        raise ValueError(f"fill value out of range for {array.dtype}") from error
    sizes = dict(zip(array.dimensions, array.shape, strict=True))
    for name, coordinate in array.coords.items():
        pairs = zip(coordinate.dimensions, coordinate.shape, strict=True)
        if not isinstance(name, str) or any(sizes.get(d, n) != n for d, n in pairs):
            raise ValueError(f"size of coordinate {name!r} differs from that of its array")


def check_geometry(geometry: Geometry) -> None:
    """Raise ValueError for invalid rows of a ragged array."""
    for part in geometry.parts:
        cuts = part.cuts
        if cuts.ndim != 2 or cuts.shape[1:] != (3,) or len(cuts) < 2 or cuts[0].any() or (np.diff(cuts, axis=0) < 0).any():
            raise ValueError("rows of files are not consecutive")
        _, runs, samples = cuts[-1].tolist()
        along = samples if part.counts is None else runs
        sizes = ((part.counts, runs), (part.index, along))
        if any(a is not None and (a.shape != (size,) or a.dtype.kind not in "iu") for a, size in sizes):
            raise ValueError("shape or dtype of row sizes or indices does not match the files")
        rows, counts = np.diff(cuts[:, [0, 2]], axis=0).T
        if part.present and (any(a.shape != (samples,) for a in part.present) or (counts % np.maximum(rows, 1)).any()):
            raise ValueError("samples of rows do not match the files")
    chosen = geometry.chosen
    if isinstance(chosen, np.ndarray) and len(chosen) and not 0 <= chosen.min() <= chosen.max() < geometry.total:
        raise ValueError("row number out of range")
    if not geometry.parts:
        raise ValueError("rows without parts")


def check_template(template: Template) -> None:
    """Raise ValueError for an invalid template."""
    shape, names, forward = template.shape, template.dimensions, template.directions
    if not all(isinstance(items, tuple) for items in (shape, names, forward)) or not len(shape) == len(names) == len(forward):
        raise ValueError("shape, dimensions and directions of a sub-array differ in length")
    if not all(type(n) is int and 0 <= n < 1 << 62 for n in shape) or not all(type(d) is bool for d in forward):
        raise ValueError("invalid shape or directions of a sub-array")
    if len(set(names)) < len(names) or not all(isinstance(n, str) for n in names):
        raise ValueError("dimensions of a sub-array are not unique names")
    texts = [template.units, template.calendar, *(text for s in template.steps for text in (s.units, s.calendar))]
    if not _is_text(*texts) or not isinstance(template.format, str):
        raise ValueError("units, calendar or format is not text")
    if not {template.temperature, *(s.temperature for s in template.steps)} <= {None, *KINDS}:
        raise ValueError("unknown kind of temperature")
    if template.assumed is not None:
        raise ValueError("sub-array with an unverified signature, which an index never has")
    declared: Any = template.names
    valid = isinstance(declared, tuple) and len(declared) in (0, len(names)) and _is_text(*declared)
    if type(template.declared) is not bool or not valid:
        raise ValueError("invalid declaration of a sub-array")
    for encoding in (template.encoding, *(s.encoding for s in template.steps if s.encoding is not None)):
        _check_encoding(encoding)


def _check_encoding(encoding: Encoding) -> None:
    factors = encoding.scale_factor, encoding.add_offset
    pairs: Any = (encoding.valid, encoding.valid_unpacked)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise ValueError("valid range is not a pair")
    if not isinstance(encoding.missing, tuple) or not isinstance(encoding.missing_nan, bool):
        raise ValueError("missing values are not a list")
    values = [v for v in (*factors, *encoding.missing, *pairs[0], *pairs[1]) if v is not None]
    if any(isinstance(v, list | tuple | dict) or np.ndim(v) for v in values):
        raise ValueError("packing or missing value is not a scalar")
    if any(np.asarray(v).dtype.kind not in "biufcmMST" for v in values):
        raise ValueError("missing value is not a number")
    if not all(factor is None or (isinstance(factor, np.generic) and factor.dtype.kind in "biuf") for factor in factors):
        raise ValueError("packing by numbers without a dtype")
    if encoding.packed and unpacked_dtype(encoding.viewed, *factors) != encoding.dtype:
        raise ValueError("packing does not give the dtype of the values")
    if encoding.viewed.itemsize != encoding.stored.itemsize:
        raise ValueError("values viewed as a dtype of another size")


def check_partitions(matrix: Matrix) -> None:
    """Raise ValueError for inconsistent columns of a matrix."""
    check_matrix(matrix)
    references, count = matrix.references, len(matrix.refs)
    names, rank = matrix.dimensions, len(matrix.edges)
    if not len(names) == len(matrix.directions) == len(set(names)) == rank:
        raise ValueError("dimensions, directions and edges differ in length")
    if any(len(e) < 2 or e[0] != 0 or (np.diff(e) < (0 if len(e) == 2 else 1)).any() for e in matrix.edges):
        raise ValueError("edges do not increase from 0")
    if not len(references.uri) == len(references.variable) == len(references.template):
        raise ValueError("columns of sub-arrays differ in length")
    inside = references.uri < 0
    limits = (
        (references.uri, -1, len(references.uris)),
        (references.template, 0, len(references.templates)),
        (references.variable[~inside], 0, len(references.variables)),
        (references.variable[inside], 0, len(references.memory)),
        (matrix.refs, -1, len(references)),
    )
    if any(len(c) and not low <= c.min() <= c.max() < high for c, low, high in limits):
        raise ValueError("row number out of range")
    if (external := references.external) is not None:
        rows, files, names = external.T
        counts = (rows, len(references)), (files, len(references.uris)), (names, len(references.variables))
        if any(len(c) and not 0 <= c.min() <= c.max() < n for c, n in counts) or (np.diff(rows) < 0).any():
            raise ValueError("row number of an external file out of range")
    if any(len(c) != count for c in (*matrix.parts.starts.values(), *matrix.parts.steps.values())):
        raise ValueError("parts and partitions differ in number")
    if any((s <= -len(matrix.parts.picks)).any() for s in matrix.parts.steps.values() if (s <= 0).any()):
        raise ValueError("number of a pick out of range")
    for row in np.flatnonzero(inside).tolist():
        values, template = references.memory[references.variable[row]], references.template_of(row)
        native = values.dtype if values.dtype.kind == "T" else values.dtype.newbyteorder("=")
        if values.shape != template.shape or native != template.encoding.stored:
            raise ValueError("shape or dtype of values in memory does not match the template")
    if not all(isinstance(name, str) for name in references.variables):
        raise ValueError("name of a variable is not text")
    _check_extents(matrix)


def _check_extents(matrix: Matrix) -> None:
    sizes = [dict(zip(t.dimensions, t.shape, strict=True)) for t in matrix.references.templates]
    if sizes and not matrix.parts.starts and not matrix.parts.steps:
        # The common case: entire sub-arrays, none of them smaller than any partition.
        least = {name: min(s.get(name, 1) for s in sizes) for name in matrix.dimensions}
        if all(int(np.diff(e).max()) <= least[d] for d, e in zip(matrix.dimensions, matrix.edges, strict=True)):
            return
    cells = np.flatnonzero(matrix.refs >= 0)
    index = np.unravel_index(cells, matrix.cells) if matrix.cells else ()
    numbers = matrix.references.template[matrix.refs[cells]]
    for axis, name in enumerate(matrix.dimensions):
        extent = np.diff(matrix.edges[axis])[index[axis]]
        # The size of a dimension that a sub-array lacks is 1.
        size = np.array([s.get(name, 1) for s in sizes], np.int64)[numbers]
        start, step = (c[name][cells] if name in c else u for c, u in ((matrix.parts.starts, 0), (matrix.parts.steps, 1)))
        start, step = np.broadcast_to(start, extent.shape), np.broadcast_to(step, extent.shape)
        # A division, because a product of large numbers would overflow.
        beyond = (start < 0) | (start >= size) | ((step > 0) & ((size - 1 - start) // np.maximum(step, 1) < extent - 1))
        is_wrong = bool((beyond & (extent > 0)).any())
        for number in np.unique(-step[step <= 0]).tolist():
            picked, picks = step == -number, matrix.parts.picks[number]
            is_wrong |= bool((extent[picked] > len(picks)).any())
            if len(picks):
                is_wrong |= bool(picks.min() < 0 or ((size - start)[picked] <= picks.max()).any())
        if is_wrong:
            raise ValueError(f"partition exceeds its sub-array along {name}")
