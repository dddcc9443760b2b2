"""Encoding of master arrays as JSON and columns, exact to the bit.

Attributes keep their dtypes. Templates, attributes and arrays that several arrays share are stored once. Only the `Writer`,
which holds the columns, has state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray
from aggarray.arrays.row_geometry import Geometry
from aggarray.cf.encoding import Encoding
from aggarray.dataclass import fields
from aggarray.index.decoder import ENCODED_DTYPES
from aggarray.index.store import Writer
from aggarray.memory.selection import Range
from aggarray.partition.matrix import Matrix, References, Step, Template, used_rows


def plain(value: Any) -> Any:
    """Return a value of an attribute or parameter as JSON, with its type.

    >>> from aggarray.index.decoder import unplain
    >>> plain("K"), plain(np.float32(0.1)), unplain(plain(np.array([1, 2], "i2"))).dtype
    ('K', {'<f4': 0.10000000149011612}, dtype('int16'))
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        return {value.dtype.str: value.tolist()}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "mMcSUf":
        # JSON has no numbers of these dtypes: stored as bytes.
        return {"bytes": [value.dtype.str, list(value.shape), np.asarray(value).tobytes().hex()]}
    if isinstance(value, np.ndarray) and value.dtype.kind == "T":
        return {"texts": [list(value.shape), [str(v) for v in value.ravel().tolist()]]}
    if isinstance(value, complex | bytes):
        return plain(np.asarray(value)[()])
    if isinstance(value, Mapping):
        return {"mapping": [[str(k), plain(v)] for k, v in value.items()]}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [plain(v) for v in value]}
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _dtype_text(dtype: np.dtype[Any]) -> str:
    return "text" if dtype.kind == "T" else dtype.str


class Encoder:
    """Encoder of master arrays that stores shared items once."""

    def __init__(self, writer: Writer) -> None:
        from aggarray.index.file_numbers import FileNumbers

        self.writer = writer
        self.files = FileNumbers()
        #: Numbers of files, and the size, time and checksum of each; later ones count.
        self._stamps: list[tuple[np.ndarray, np.ndarray]] = []
        self.templates: list[Any] = []
        self.attributes: list[Any] = []
        self.geometries: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def add_stamps(self, codes: np.ndarray, stamps: np.ndarray) -> None:
        """Record the states of files, int64 (files, 3); a size below 0 is none."""
        rows = np.flatnonzero(stamps[:, 0] >= 0)
        self._stamps.append((codes[rows], stamps[rows]) if len(rows) < len(codes) else (codes, stamps))

    def stamps(self) -> np.ndarray:
        """Return the states of all files, int64 (files, 3), -1 where unknown."""
        stamps = np.full((len(self.files), 3), -1, np.int64)
        for codes, known in self._stamps:
            stamps[codes] = known
        return stamps

    def _once(self, key: Any, into: list[Any], make: Callable[[], Any]) -> int:
        """Return the number of an item in a list; a new item is made and appended."""
        if key not in self._numbers:
            into.append(make())
            self._numbers[key] = len(into) - 1
        return self._numbers[key]

    def attrs(self, attrs: Mapping[str, Any]) -> int:
        """Return the number of a mapping of attributes."""
        pairs = [[name, plain(value)] for name, value in attrs.items()]
        return self._once(("attributes", repr(pairs)), self.attributes, lambda: pairs)

    def template(self, template: Template) -> int:
        """Return the number of a template."""
        return self._once(template, self.templates, lambda: _template(template))

    def file_codes(self, references: References) -> np.ndarray:
        """Return the number of each URI of a table, and record the stamps."""
        codes = self.files.of(references.uris)
        if references.stamps is not None:
            self.add_stamps(codes, references.stamps)
        return codes

    def matrix(self, matrix: Matrix) -> dict[str, Any]:
        """Encode a matrix of partitions, without the sub-arrays that no cell uses."""
        matrix = matrix.compact()
        references, column = matrix.references, self.writer.column
        files = np.append(self.file_codes(references), -1)
        codes, external = files[references.uri], references.external
        # Some templates may be unused: those of signatures that were verified meanwhile.
        used = used_rows(references.template, len(references.templates)).tolist()
        templates = np.full(len(references.templates), -1, np.int64)
        templates[used] = [self.template(references.templates[n]) for n in used]
        encoded = {
            "dimensions": list(matrix.dimensions),
            "directions": list(matrix.directions),
            "edges": [column(e) for e in matrix.edges],
            "refs": column(matrix.refs),
            "file": column(codes),
            "variable": column(references.variable),
            "template": column(templates[references.template]),
            "variables": list(references.variables),
            "memory": [self.writer.value(m) for m in references.memory],
            "starts": {a: column(s) for a, s in matrix.parts.starts.items()},
            "steps": {a: column(s) for a, s in matrix.parts.steps.items()},
            "picks": [column(p) for p in matrix.parts.picks],
            "external": []
            if external is None
            else [column(c) for c in (external[:, 0], files[external[:, 1]], external[:, 2])],
        }
        return {k: v for k, v in encoded.items() if v not in ([], {}) or k in ("dimensions", "directions", "edges")}

    def array(self, array: MasterArray) -> dict[str, Any]:
        """Encode a master array with its coordinates."""
        encoded = {
            "name": array.name,
            "dtype": _dtype_text(array.dtype),
            "units": array.units,
            "calendar": array.calendar,
            "fill": plain(array.fill_value),
            "attrs": self.attrs(array.attrs),
            "file_attrs": self.attrs(array.file_attrs),
            "matrix": self.matrix(array._matrix),
            "coords": {name: self.array(c) for name, c in array.coords.items()},
        }
        if array._known is not None:
            values, mask = array._known
            encoded["known"] = [self.writer.value(values), None if mask is None else self.writer.value(np.packbits(mask))]
        if isinstance(array, RaggedMasterArray):
            self.writer.require(2)
            geometry = array._instances  # its coordinates share it
            encoded["rows"] = self._once(("rows", id(geometry)), self.geometries, lambda: self._geometry(geometry))
        return encoded

    def _geometry(self, geometry: Geometry) -> dict[str, Any]:
        chosen, column = geometry.chosen, self.writer.column
        parts = []
        for part in geometry.parts:
            counts, index = (None if array is None else self.array(array) for array in (part.counts, part.index))
            present = list(map(self.array, part.present))
            parts.append({"cuts": list(map(column, part.cuts.T)), "counts": counts, "index": index, "present": present})
        picked = None if chosen is None else column(chosen.indices() if isinstance(chosen, Range) else chosen)
        return {"dimension": geometry.dimension, "parts": parts, "chosen": picked}


def _step(step: Step) -> list[Any]:
    decoding = None if step.encoding is None else _encoding(step.encoding)
    # The additional item of temperature differences is an error in earlier versions, which would misread them.
    temperature = () if step.temperature is None else (step.temperature,)
    return [step.units, step.calendar, _dtype_text(step.dtype), decoding, *temperature]


def _encoding(encoding: Encoding) -> Any:
    values = {f.name: getattr(encoding, f.name) for f in fields(Encoding)}
    return plain({**values, **{name: _dtype_text(values[name]) for name in ENCODED_DTYPES}})


def _template(template: Template) -> dict[str, Any]:
    encoded = {f.name: plain(getattr(template, f.name)) for f in fields(Template) if f.name not in ("encoding", "steps")}
    if template.temperature is None:
        del encoded["temperature"]
    return {**encoded, "encoding": _encoding(template.encoding), "steps": [_step(s) for s in template.steps]}
