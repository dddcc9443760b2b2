"""Encoding of master arrays as JSON and columns, exact to the bit.

Attributes keep their dtypes. Templates, attributes and arrays that several arrays share are stored once. Only the `Writer`
and the `Reader`, which hold the columns, have state.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray, ragged
from aggarray.arrays.row_geometry import Geometry, Part
from aggarray.arrays.values import KnownValues
from aggarray.cf.encoding import Encoding
from aggarray.cf.frozen import FrozenDict, intern_value
from aggarray.errors import IndexFileError
from aggarray.index.store import EAGER, Reader, Writer, plain_dtype
from aggarray.index.uris import Files
from aggarray.index.validation import check_array, check_geometry, check_partitions, check_template
from aggarray.memory.selection import Range
from aggarray.partition.grid import MAX_CELLS
from aggarray.partition.matrix import Matrix, Parts, References, Step, Template, used_rows
from aggarray.partition.stored_sizes import ChunkIndexes
from aggarray.storage.access import Access

#: Kinds of dtypes of attributes, text of fixed length included.
_ATTRIBUTE_KINDS = "biufcmMSU"
#: Largest item size of an attribute in bytes.
_MAX_ITEM_SIZE = 1 << 20

#: Shorter columns are searched with a Python set.
_SHORT = 1 << 16
_ENCODED_DTYPES = ("stored", "viewed", "dtype")


def plain(value: Any) -> Any:
    """Return a value of an attribute or parameter as JSON, with its type.

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


def _dtype_text(dtype: np.dtype[Any]) -> str:
    return "text" if dtype.kind == "T" else dtype.str


class Encoder:
    """Encoder of master arrays that stores shared items once."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.files: dict[str, int] = {}
        self.stamps: dict[int, Sequence[int]] = {}
        self.templates: list[Any] = []
        self.attributes: list[Any] = []
        self.geometries: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._codes: dict[int, tuple[Any, np.ndarray]] = {}

    def code(self, uri: str) -> int:
        """Return the number of a file; a new file is added."""
        return self.files.setdefault(uri, len(self.files))

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
        entry = self._codes.get(id(references.uris))
        if entry is None:
            files = self.files
            codes = np.array([files.setdefault(uri, len(files)) for uri in references.uris], np.int64)
            entry = self._codes[id(references.uris)] = (references.uris, codes)
        if references.stamps is not None:
            rows = np.flatnonzero(references.stamps[:, 0] >= 0)
            self.stamps.update(zip(entry[1][rows].tolist(), references.stamps[rows].tolist(), strict=True))
        return entry[1]

    def matrix(self, matrix: Matrix) -> dict[str, Any]:
        """Encode a matrix of partitions, without the sub-arrays that no cell uses."""
        matrix = matrix.compact()
        references, column = matrix.references, self.writer.column
        codes = np.append(self.file_codes(references), -1)[references.uri]
        # Some templates may be unused: those of signatures that were verified meanwhile.
        used = set(references.template.tolist())
        templates = np.array([self.template(t) if n in used else -1 for n, t in enumerate(references.templates)], np.int64)
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
            self.writer.newer = True
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
    return plain({**values, **{name: _dtype_text(values[name]) for name in _ENCODED_DTYPES}})


def _template(template: Template) -> dict[str, Any]:
    encoded = {f.name: plain(getattr(template, f.name)) for f in fields(Template) if f.name not in ("encoding", "steps")}
    if template.temperature is None:
        del encoded["temperature"]
    return {**encoded, "encoding": _encoding(template.encoding), "steps": [_step(s) for s in template.steps]}


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
        self.stamps = np.stack([reader.column(c) for c in document["stamps"]], axis=-1) if len(files) else None
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
        used, uri = _renumber(uri, len(self.files))
        files, stamps = self.files, self.stamps
        if len(used) < len(files):
            files, stamps = files.take(used), None if stamps is None else stamps[used]
        items = (tuple(encoded.get("variables", ())), templates, memory, uri, variable, template)
        references = References(files, *items, stamps, self.tables)
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
            array = ragged(array, self.geometries[encoded["rows"]], array.coords)
        check_array(array)
        return array

    def _geometry(self, encoded: Mapping[str, Any]) -> Geometry:
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


def _renumber(column: np.ndarray, count: int) -> tuple[Sequence[int], np.ndarray]:
    """Return the rows a column uses, and the column renumbered; -1 stays.

    >>> _renumber(np.array([7, -1, 7]), 10)
    ([7], array([ 0, -1,  0], dtype=int32))
    """
    used: Any
    distinct = sorted(set(column.tolist())) if len(column) < _SHORT else [int(column.min()), int(column.max())]
    least, most = (distinct[0], distinct[-1]) if distinct else (0, -1)
    if least < -1 or most >= count:
        raise ValueError("row number out of range")
    if len(column) < _SHORT:
        used = distinct[1:] if least < 0 else distinct
    else:
        used = used_rows(column[column >= 0] if least < 0 else column, count)
    if len(used) == most + 1:  # all rows up to the last
        return range(most + 1), column
    used = list(map(int, used))
    return used, np.where(column < 0, -1, np.searchsorted(used, column)).astype(np.int32)


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
    return Encoding(**{**values, **{name: _dtype(values[name]) for name in _ENCODED_DTYPES}})
