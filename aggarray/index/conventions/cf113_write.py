"""Writer of the aggregation variables of CF-1.13 (CF section 2.8).

CF cannot express parts of fragments, reversed or transposed fragments, or missing fragments beside others; `CF113.reason`
returns the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.formats.flattened import is_flat
from aggarray.index.container import Container
from aggarray.memory.texts import Texts
from aggarray.partition.matrix import Matrix, Template, used_numbers
from aggarray.storage.blake2 import blake2b

#: Number of references that are texts at a time.
_BLOCK = 1 << 16
#: Default fill value of floating variables in netCDF.
_NETCDF_FILL = 9.969209968386869e36


def inexpressible(array: MasterArray) -> str | None:
    """Return why CF-1.13 cannot express an array, None if it can."""
    matrix = array._matrix
    missing, references = matrix.refs < 0, matrix.references
    if missing.all():
        return None
    if missing.any():
        return "some of its partitions are missing, others are files"
    if (references.uri[matrix.refs] < 0).any():
        return "some of its partitions are in memory, others are files"
    if matrix.parts.starts or matrix.parts.steps:
        return "it uses parts of its sub-arrays"
    if any(map(is_flat, references.variables)):
        return "its rows are stored in arrays of two dimensions"
    if any(matrix.flips(axis).any() for axis in range(array.ndim)):
        return "some of its sub-arrays are reversed"
    used = used_numbers(references.template, matrix.refs, len(references.templates))
    return next((text for n in used.tolist() if (text := _deviation(matrix, n)) is not None), None)


def _deviation(matrix: Matrix, number: int) -> str | None:
    """Return how the sub-arrays of a template deviate from canonical form."""
    template: Template = matrix.references.templates[number]
    # A single decoding of a declared sub-array is that of the missing value of its aggregation variable.
    decoding = template.steps[0].encoding if template.declared and len(template.steps) == 1 else None
    plain = decoding is not None and not decoding.packed and len(decoding.missing) == 1 and not decoding.missing_nan
    if decoding is not None and (decoding.valid, decoding.valid_unpacked) != ((None, None), (None, None)):
        plain = False
    if template.steps and not plain:
        return "its values need several conversions"
    extra = [d for d in template.dimensions if d not in matrix.dimensions]
    if extra:
        return f"its sub-arrays have an additional dimension {extra[0]!r}"
    if [d for d in matrix.dimensions if d in template.dimensions] != list(template.dimensions):
        return "the dimensions of its sub-arrays have another order"
    cells = np.flatnonzero(matrix.references.template[matrix.refs] == number)
    index = np.unravel_index(cells, matrix.cells) if matrix.cells else ()
    sizes = dict(zip(template.dimensions, template.shape, strict=True))
    for axis, name in enumerate(matrix.dimensions):
        if (np.diff(matrix.edges[axis])[index[axis]] != sizes.get(name, 1)).any():
            return f"it cuts sub-arrays along {name!r}"
    return None


class CF113(Container):
    """A file of CF-1.13 aggregation variables."""

    conventions = "CF-1.13"
    reason = staticmethod(inexpressible)

    def aggregated(self, array: MasterArray, name: str, dimensions: Sequence[str]) -> Any:
        """Write a scalar aggregation variable, and those of its terms."""
        absent = bool((array._matrix.refs < 0).all())
        fill = array.dtype.type(_NETCDF_FILL) if array.dtype.kind == "f" else array.fill_value
        templates = array._matrix.references.templates
        # The missing value of the aggregation variable from which the array was read.
        encodings = (t.steps[0].encoding for t in templates if t.declared and t.steps)
        own_fill = next((e.missing[0] for e in encodings if e is not None and e.missing), None)
        fill = fill if own_fill is None or absent else own_fill
        missing = array.dtype.kind in "iu" and any(t.encoding.may_miss for t in templates)
        declared = absent or own_fill is not None or missing
        variable = self.variable(name, array.dtype, (), fill if declared and array.dtype.kind in "iuf" else None)
        variable.aggregated_dimensions = " ".join(dimensions)
        if absent:
            cells, is_text = array._matrix.cells, array.dtype.kind == "T"
            values = np.full(cells, "" if is_text else fill, object if is_text else array.dtype)
            terms = {"unique_values": self._table(f"{name}_unique_values", self._sizes("fragments", cells), values)}
        else:
            terms = self._located(array._matrix, name)
        variable.aggregated_data = " ".join(f"{t}: {v}" for t, v in {"map": self._map(array._matrix, name), **terms}.items())
        return variable

    def _sizes(self, prefix: str, sizes: tuple[int, ...]) -> list[str]:
        """Return distinct dimensions of these sizes (CF section 2.4)."""
        names: list[str] = []
        for number, size in enumerate(sizes):
            name, new = self.names.of((prefix, size, sizes[:number].count(size)), f"{prefix}_{size}")
            if new:
                self.dataset.createDimension(name, size)
            names.append(name)
        return names

    def _located(self, matrix: Matrix, name: str) -> dict[str, str]:
        references, rows = matrix.references, matrix.refs
        files, codes = self.references(references)
        paths = np.array([f"/{v}" if "/" in v else v for v in references.variables], object)
        dimensions = self._sizes("fragments", matrix.cells)
        terms = {"uris": self._uris(f"{name}_uris", dimensions, files, codes[references.uri[rows]])}
        used = used_numbers(references.variable, rows, len(references.variables))
        single = len(used) == 1
        identifiers = np.array(paths[used[0]] if single else paths[references.variable[rows]].reshape(matrix.cells), object)
        return {**terms, "identifiers": self._table(f"{name}_identifiers", [] if single else dimensions, identifiers)}

    def _uris(self, preferred: str, dimensions: Sequence[str], files: Texts, codes: np.ndarray) -> str:
        """Write the references of fragments; ``codes``: their files, in C order."""
        key = ("uris", tuple(dimensions), blake2b(codes.tobytes()).digest())
        name, new = self.names.of(key, preferred)
        if new:
            variable = self.variable(name, np.dtype(object), dimensions)
            # Blocks of whole rows along the first dimension.
            count = variable.shape[0] if dimensions else 0
            width = max(1, len(codes) // max(count, 1))
            if not dimensions:
                variable[...] = files[int(codes[0])]
            for first in range(0, count, step := max(1, _BLOCK // width)):
                some = codes[first * width : (first + step) * width]
                texts = np.array(list(files.take(some)), object)
                variable[first : first + step] = texts.reshape(-1, *variable.shape[1:])
        return name

    def _map(self, matrix: Matrix, name: str) -> str:
        sizes = [np.diff(e) for e in matrix.edges]
        if not sizes:
            return self._table(f"{name}_map", [], np.array(1, np.int32))
        dtype = np.dtype(np.int32 if max(int(e[-1]) for e in matrix.edges) < 2**31 else np.int64)
        rows = np.full((len(sizes), max(map(len, sizes))), -1, dtype)
        for row, lengths in zip(rows, sizes, strict=True):
            row[: len(lengths)] = lengths
        return self._table(f"{name}_map", self._sizes("map", rows.shape), rows, dtype.type(-1))

    def _table(self, preferred: str, dimensions: Sequence[str], values: np.ndarray, fill: Any = None) -> str:
        """Write a variable that a term names; arrays of the same files share it."""
        content = "\n".join(values.ravel().tolist()).encode() if values.dtype == object else values.tobytes()
        name, new = self.names.of(("table", tuple(dimensions), values.dtype.str, blake2b(content).digest()), preferred)
        if new:
            self.variable(name, values.dtype, dimensions, fill)[...] = values if values.ndim else values.item()
        return name
