"""Decoding of master arrays from the JSON and columns of an index."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.values import KnownValues
from aggarray.cf.encoding import Encoding
from aggarray.cf.frozen import FrozenDict, intern_value
from aggarray.errors import IndexFileError
from aggarray.index.indexed_files import Files
from aggarray.index.store import EAGER, Reader, plain_dtype
from aggarray.index.validation import check_array, check_geometry, check_partitions, check_template
from aggarray.partition.matrix import MAX_CELLS, Matrix, Parts, References, Step, Template
from aggarray.storage.access import Access

if TYPE_CHECKING:
    from aggarray.arrays.row_geometry import Geometry
    from aggarray.partition.stored_sizes import ChunkIndexes

#: Kinds of dtypes of attributes, text of fixed length included.
_ATTRIBUTE_KINDS = "biufcmMSU"
#: Largest item size of an attribute in bytes.
_MAX_ITEM_SIZE = 1 << 20

#: Shorter columns are searched with a Python set.
_SHORT = 1 << 16
#: Fields of an encoding that are dtypes.
ENCODED_DTYPES = ("stored", "viewed", "dtype")


def unplain(encoded: Any) -> Any:
    """Return the value that `plain` encoded."""
    if not isinstance(encoded, dict):
        return encoded
    ((tag, content),) = encoded.items()
    if tag == "mapping":
        return {k: unplain(v) for k, v in content}
    if tag in ("tuple", "list"):
        return (tuple if tag == "tuple" else list)(unplain(v) for v in content)
    if tag == "texts":
        return np.array(content[1], np.dtypes.StringDType()).reshape(content[0])
    if tag == "bytes":
        dtype, shape, data = content
        return np.frombuffer(bytes.fromhex(data), _dtype(dtype, _ATTRIBUTE_KINDS)).reshape(shape)[()]
    return np.array(content, _dtype(tag))[()]


def _dtype(text: str, kinds: str = "biufcmM") -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtypes.StringDType() if text == "text" else plain_dtype(text)
    if dtype.kind not in f"{kinds}T" or dtype.itemsize > _MAX_ITEM_SIZE:
        raise ValueError(f"dtype {text!r}")
    return dtype


class LazyValues(Sequence[Any]):
    """Pair (values, mask or None), as a scan returns it, read on first use."""

    __slots__ = ("_dtype", "_pair", "_reader", "_shape", "_spec")

    def __init__(self, reader: Reader, spec: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._reader, self._spec, self._shape, self._dtype = reader, spec, shape, dtype
        self._pair: KnownValues | None = None

    def load(self) -> KnownValues:
        """Return values and mask, or raise IndexFileError if the index changed."""
        if self._pair is None:
            with self._reader.opened():
                values = self._reader.value(self._spec[0])
                mask = None
                if self._spec[1] is not None:
                    bits = self._reader.value(self._spec[1])
                    if len(bits) != -(-math.prod(self._shape) // 8):
                        raise ValueError(f"mask of {len(bits)} bytes for values of shape {self._shape}")
                    mask = np.unpackbits(bits, count=math.prod(self._shape)).reshape(self._shape).astype(bool)
                if values.shape != self._shape or values.dtype != self._dtype:
                    actual = f"{values.dtype} of shape {values.shape}"
                    raise ValueError(f"values are {actual}, not {self._dtype} of shape {self._shape}")
            self._pair = (values, mask)
        return self._pair

    def __len__(self) -> int:
        return 2

    def __getitem__(self, item: Any) -> Any:
        return self.load()[item]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.load())


class Decoder:
    """Decoder of what an `Encoder` wrote; ``stamps``: int64 (files, 3)."""

    def __init__(self, reader: Reader, document: Mapping[str, Any], files: Files, access: Access) -> None:
        self.reader, self.files, self.access = reader, files, access
        self.tables: ChunkIndexes | None = None
        self.stamps = np.stack([reader.column(c) for c in document["stamps"]]).T if len(files) else None
        if self.stamps is not None and self.stamps.shape != (len(files), 3):
            raise ValueError(f"stamps of shape {self.stamps.shape} for {len(files)} files")
        self.templates = tuple(map(_decode_template, document["templates"]))
        self.attributes = [intern_value({k: unplain(v) for k, v in pairs}) for pairs in document["attributes"]]
        self.geometries: list[Geometry] = []
        for spec in document.get("geometries", ()):
            self.geometries.append(self._geometry(spec))
        if not all(isinstance(name, str) for attrs in self.attributes for name in attrs):
            raise ValueError("name of an attribute is not text")

    def matrix(self, encoded: Mapping[str, Any]) -> Matrix:
        """Decode a matrix and validate its columns."""
        column = self.reader.column
        edges = tuple(map(column, encoded["edges"]))
        if (count := math.prod(len(e) - 1 for e in edges)) > MAX_CELLS:
            what = f"array of {count} partitions, more than {MAX_CELLS}: not an index that aggarray wrote"
            raise IndexFileError(what, path=self.reader.path)
        uri, variable, template = (column(encoded.get(k, {"is": []}), np.int32) for k in ("file", "variable", "template"))
        memory = tuple(map(self.reader.value, encoded.get("memory", ())))
        # The matrix gets only the files and templates that it uses.
        used, template = _renumber(template, len(self.templates))
        templates = tuple(self.templates[n] for n in used)
        external = [column(c, np.int32) for c in encoded.get("external", ())]
        used, uris = _renumber(np.concatenate([uri, external[1]]) if external else uri, len(self.files))
        files, stamps = self.files, self.stamps
        if len(used) < len(files):
            rows = slice(used.start, used.stop) if isinstance(used, range) else used
            files, stamps = files.take(used), None if stamps is None else stamps[rows]
        others = np.stack([external[0], uris[len(uri) :], external[2]], axis=-1) if external else None
        items = (tuple(encoded.get("variables", ())), templates, memory, uris[: len(uri)], variable, template)
        references = References(files, *items, stamps, self.tables, external=others)
        starts, steps = ({d: column(spec) for d, spec in encoded.get(name, {}).items()} for name in ("starts", "steps"))
        parts = Parts(starts, steps, tuple(map(column, encoded.get("picks", ()))))
        names = tuple(map(str, encoded["dimensions"])), tuple(map(bool, encoded["directions"]))
        matrix = Matrix(*names, edges, references, column(encoded["refs"], np.int32), parts)
        check_partitions(matrix)
        return matrix

    def array(self, encoded: Mapping[str, Any]) -> MasterArray:
        """Decode a master array with its coordinates."""
        dtype, matrix = _dtype(encoded["dtype"]), self.matrix(encoded["matrix"])
        values: Any = None
        if "known" in encoded:
            values = LazyValues(self.reader, encoded["known"], matrix.shape, dtype)
            values = values.load() if math.prod(matrix.shape) * dtype.itemsize <= EAGER else values
        described = encoded["name"], dtype, encoded["units"], encoded["calendar"], unplain(encoded["fill"])
        attrs, file_attrs = (self.attributes[encoded[name]] for name in ("attrs", "file_attrs"))
        coords = FrozenDict({name: self.array(c) for name, c in encoded["coords"].items()})
        array = MasterArray(*described, matrix, attrs, file_attrs, coords, values, self.access)
        if "rows" in encoded:
            from aggarray.arrays.ragged import ragged

            array = ragged(array, self.geometries[encoded["rows"]], array.coords)
        check_array(array)
        return array

    def _geometry(self, encoded: Mapping[str, Any]) -> Geometry:
        from aggarray.arrays.row_geometry import Geometry, Part

        column, parts = self.reader.column, []
        for part in encoded["parts"]:
            cuts = np.stack([column(c) for c in part["cuts"]], axis=-1)
            counts, index = (None if part[name] is None else self.array(part[name]) for name in ("counts", "index"))
            # Early indexes do not store the coordinates that tell incomplete rows.
            parts.append(Part(cuts, counts, index, tuple(map(self.array, part.get("present", ())))))
        rows = None if encoded["chosen"] is None else column(encoded["chosen"])
        geometry = Geometry(str(encoded["dimension"]), tuple(parts), rows)
        check_geometry(geometry)
        return geometry


def _renumber(column: np.ndarray, count: int) -> tuple[Sequence[int] | np.ndarray, np.ndarray]:
    """Return the rows a column uses, and the column renumbered; -1 stays.

    >>> _renumber(np.array([7, -1, 5]), 10)
    (array([5, 7]), array([ 1, -1,  0], dtype=int32))
    """
    distinct = sorted(set(column.tolist())) if len(column) < _SHORT else [int(column.min()), int(column.max())]
    least, most = (distinct[0], distinct[-1]) if distinct else (0, -1)
    if least < -1 or most >= count:
        raise ValueError("row number out of range")
    is_used = np.zeros(most + 1, bool)
    is_used[column[column >= 0] if least < 0 else column] = True
    number = int(is_used.sum())
    first = int(is_used.argmax()) if number else 0
    if number == most + 1 - first:  # all rows from one to another
        return range(first, most + 1), column if not first else np.where(column < 0, -1, column - first).astype(np.int32)
    used = np.flatnonzero(is_used)
    return used, np.where(column < 0, -1, (np.cumsum(is_used, dtype=np.int32) - 1)[column]).astype(np.int32)


def _decode_template(encoded: Mapping[str, Any]) -> Template:
    others = {k: unplain(v) for k, v in encoded.items() if k not in ("encoding", "steps")}
    steps = tuple(
        Step(u, c, _dtype(d), None if e is None else _decode_encoding(e), *rest) for u, c, d, e, *rest in encoded["steps"]
    )
    template = Template(**others, encoding=_decode_encoding(encoded["encoding"]), steps=steps)
    check_template(template)
    return template


def _decode_encoding(encoded: Any) -> Encoding:
    values = unplain(encoded)
    return Encoding(**{**values, **{name: _dtype(values[name]) for name in ENCODED_DTYPES}})
