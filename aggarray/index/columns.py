"""How is a master array written as JSON and columns, so that what is read back is the same to the bit?

Attributes keep their dtypes, templates, attributes and arrays that several share are written once. Pure but for the
`Writer` and `Reader` that hold the columns.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from aggarray.arrays import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray, ragged
from aggarray.arrays.row_geometry import Geometry, Part
from aggarray.cf.encoding import Encoding
from aggarray.cf.frozen import FrozenDict, intern_value
from aggarray.index.lazy_values import LazyValues
from aggarray.index.store import EAGER, Reader, Writer, check_cells, plain_dtype
from aggarray.index.uris import Files
from aggarray.index.validation import check_array, check_geometry, check_partitions, check_template
from aggarray.memory.selection import Range
from aggarray.partition.matrix import Matrix, Parts, References, Step, Template, used_rows
from aggarray.partition.stored_sizes import ChunkIndexes
from aggarray.storage.access import Access

#: Kinds of values that attributes have; text has its length in its dtype there.
_OF_ATTRIBUTES = "biufcmMSU"
#: Bytes of one such text.
_LONGEST = 1 << 20

#: Columns shorter than this are quicker gone through than counted.
_FEW = 1 << 16
_ENCODED_DTYPES = ("stored", "viewed", "dtype")


def plain(value: Any) -> Any:
    """Return any value of an attribute or parameter as JSON holds it, its type kept.

    >>> plain("K"), plain(np.float32(0.1)), unplain(plain(np.array([1, 2], "i2"))).dtype
    ('K', {'<f4': 0.10000000149011612}, dtype('int16'))
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        return {value.dtype.str: value.tolist()}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "mMcSUf":
        # What JSON has no numbers for travels as bytes.
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


def unplain(found: Any) -> Any:
    """Return what `plain` was given."""
    if not isinstance(found, dict):
        return found
    ((kind, content),) = found.items()
    if kind == "mapping":
        return {k: unplain(v) for k, v in content}
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(unplain(v) for v in content)
    if kind == "texts":
        return np.array(content[1], np.dtypes.StringDType()).reshape(content[0])
    if kind == "bytes":
        dtype, shape, data = content
        return np.frombuffer(bytes.fromhex(data), _dtype(dtype, _OF_ATTRIBUTES)).reshape(shape)[()]
    return np.array(content, _dtype(kind))[()]


def _dtype(text: str, kinds: str = "biufcmM") -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtypes.StringDType() if text == "text" else plain_dtype(text)
    if dtype.kind not in f"{kinds}T" or dtype.itemsize > _LONGEST:
        raise ValueError(f"dtype {text!r}")
    return dtype


def _dtype_text(dtype: np.dtype[Any]) -> str:
    return "text" if dtype.kind == "T" else dtype.str


class Encoder:
    """Encodes master arrays, what they share once; ``files`` are the URIs of all, numbered as they come."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.files: dict[str, int] = {}
        self.stamps: dict[int, Sequence[int]] = {}
        self.templates: list[Any] = []
        self.attributes: list[Any] = []
        self.geometries: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._codes: dict[int, tuple[Any, np.ndarray]] = {}

    def _once(self, key: Any, into: list[Any], make: Callable[[], Any]) -> int:
        """Return the number of an item in a list, made and appended when it is new."""
        if key not in self._numbers:
            into.append(make())
            self._numbers[key] = len(into) - 1
        return self._numbers[key]

    def attrs(self, attrs: Mapping[str, Any]) -> int:
        """Return the number of a mapping of attributes."""
        found = [[name, plain(value)] for name, value in attrs.items()]
        return self._once(("attributes", repr(found)), self.attributes, lambda: found)

    def template(self, template: Template) -> int:
        """Return the number of a template."""
        return self._once(template, self.templates, lambda: _template(template))

    def file_codes(self, references: References) -> np.ndarray:
        """Return the number of each URI of a table among the files of all; what is known of them is noted."""
        known = self._codes.get(id(references.uris))
        if known is None:
            known = self._codes[id(references.uris)] = (references.uris, self._numbered(references.uris))
        if references.stamps is not None:
            rows = np.flatnonzero(references.stamps[:, 0] >= 0)
            self.stamps.update(zip(known[1][rows].tolist(), references.stamps[rows].tolist(), strict=True))
        return known[1]

    def _numbered(self, uris: Sequence[str]) -> np.ndarray:
        if not self.files:
            first = dict(zip(uris, range(len(uris)), strict=True))
            if len(first) == len(uris):
                self.files = first
                return np.arange(len(uris))
        return np.array([self.files.setdefault(u, len(self.files)) for u in uris], np.int64)

    def matrix(self, matrix: Matrix) -> dict[str, Any]:
        """Encode a matrix of partitions; sub-arrays that no cell uses are left out."""
        matrix = matrix.compact()
        references, column = matrix.references, self.writer.column
        codes = np.append(self.file_codes(references), -1)[references.uri]
        # Some may be of nothing any more: what was assumed, and has been looked at since.
        used = set(references.template.tolist())
        templates = np.array([self.template(t) if n in used else -1 for n, t in enumerate(references.templates)], np.int64)
        found = {
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
        return {k: v for k, v in found.items() if v not in ([], {}) or k in ("dimensions", "directions", "edges")}

    def array(self, array: MasterArray) -> dict[str, Any]:
        """Encode a master array with its coordinates."""
        found = {
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
            found["known"] = [self.writer.value(values), None if mask is None else self.writer.value(np.packbits(mask))]
        if isinstance(array, RaggedMasterArray):
            self.writer.newer = True
            found["rows"] = self._rows(array._instances)
        return found

    def _rows(self, geometry: Geometry) -> int:
        """Return the number of the rows of a ragged array, which its coordinates share."""
        return self._once(("rows", id(geometry)), self.geometries, lambda: self._geometry(geometry))

    def _geometry(self, geometry: Geometry) -> dict[str, Any]:
        chosen, column = geometry.chosen, self.writer.column
        parts = [
            {
                "cuts": [column(c) for c in part.cuts.T],
                "counts": None if part.counts is None else self.array(part.counts),
                "index": None if part.index is None else self.array(part.index),
                "present": [self.array(one) for one in part.present],
            }
            for part in geometry.parts
        ]
        picked = None if chosen is None else column(chosen.indices() if isinstance(chosen, Range) else chosen)
        return {"dimension": geometry.dimension, "parts": parts, "chosen": picked}


def _step(step: Step) -> list[Any]:
    decoding = None if step.encoding is None else _encoding(step.encoding)
    # What an index of temperature differences says in addition, earlier versions refuse rather than misread.
    kind = () if step.temperature is None else (step.temperature,)
    return [step.units, step.calendar, _dtype_text(step.dtype), decoding, *kind]


def _encoding(encoding: Encoding) -> Any:
    found = {f.name: getattr(encoding, f.name) for f in fields(Encoding)}
    return plain({**found, **{name: _dtype_text(found[name]) for name in _ENCODED_DTYPES}})


def _template(template: Template) -> dict[str, Any]:
    found = {f.name: plain(getattr(template, f.name)) for f in fields(Template) if f.name not in ("encoding", "steps")}
    if template.temperature is None:
        del found["temperature"]
    return {**found, "encoding": _encoding(template.encoding), "steps": [_step(s) for s in template.steps]}


class Decoder:
    """Decodes what an `Encoder` wrote; ``files``: the URIs by number, ``stamps``: int64 (files, 3)."""

    def __init__(self, reader: Reader, document: Mapping[str, Any], files: Files, access: Access) -> None:
        self.reader = reader
        self.files = files
        self.access = access
        self.tables: ChunkIndexes | None = None
        self.stamps = np.stack([reader.column(c) for c in document["stamps"]], axis=-1) if len(files) else None
        if self.stamps is not None and self.stamps.shape != (len(files), 3):
            raise ValueError(f"stamps of shape {self.stamps.shape} for {len(files)} files")
        self.templates = tuple(map(_untemplate, document["templates"]))
        self.attributes = [intern_value({k: unplain(v) for k, v in pairs}) for pairs in document["attributes"]]
        self.geometries: list[Geometry] = []
        for one in document.get("geometries", ()):
            self.geometries.append(self._geometry(one))
        if not all(isinstance(name, str) for attrs in self.attributes for name in attrs):
            raise ValueError("attributes that are not named by text")

    def matrix(self, found: Mapping[str, Any]) -> Matrix:
        """Decode a matrix and check that its columns fit each other."""
        column, parts = self.reader.column, {}
        edges = tuple(column(e) for e in found["edges"])
        check_cells(math.prod(len(e) - 1 for e in edges), self.reader.path)
        uri, variable, template = (column(found.get(k, {"is": []}), np.int32) for k in ("file", "variable", "template"))
        memory = tuple(map(self.reader.value, found.get("memory", ())))
        # Files and templates of other arrays are none of its business.
        used, template = _renumbered(template, len(self.templates))
        templates = tuple(self.templates[n] for n in used)
        used, uri = _renumbered(uri, len(self.files))
        files, stamps = self.files, self.stamps
        if len(used) < len(files):
            files, stamps = files.take(used), None if stamps is None else stamps[used]
        own = (tuple(found.get("variables", ())), templates, memory, uri, variable, template)
        references = References(files, *own, stamps, self.tables)
        for kind in ("starts", "steps"):
            parts[kind] = {axis: column(spec) for axis, spec in found.get(kind, {}).items()}
        picks = tuple(column(spec) for spec in found.get("picks", ()))
        names = tuple(map(str, found["dimensions"])), tuple(bool(d) for d in found["directions"])
        matrix = Matrix(*names, edges, references, column(found["refs"], np.int32), Parts(**parts, picks=picks))
        check_partitions(matrix)
        return matrix

    def array(self, found: Mapping[str, Any]) -> MasterArray:
        """Decode a master array with its coordinates."""
        dtype, matrix = _dtype(found["dtype"]), self.matrix(found["matrix"])
        known = None
        if "known" in found:
            known = LazyValues(self.reader, found["known"], matrix.shape, dtype)
            known = known.load() if math.prod(matrix.shape) * dtype.itemsize <= EAGER else known  # type: ignore[assignment]
        made = MasterArray(
            found["name"],
            dtype,
            found["units"],
            found["calendar"],
            unplain(found["fill"]),
            matrix,
            self.attributes[found["attrs"]],
            self.attributes[found["file_attrs"]],
            FrozenDict({name: self.array(c) for name, c in found["coords"].items()}),
            known,  # type: ignore[arg-type]
            self.access,
        )
        if "rows" in found:
            made = ragged(made, self.geometries[found["rows"]], made.coords)
        check_array(made)
        return made

    def _geometry(self, found: Mapping[str, Any]) -> Geometry:
        column, parts = self.reader.column, []
        for part in found["parts"]:
            cuts = np.stack([column(c) for c in part["cuts"]], axis=-1)
            counts, index = (None if part[name] is None else self.array(part[name]) for name in ("counts", "index"))
            # Indexes of before rows could be incomplete do not say which coordinates tell.
            parts.append(Part(cuts, counts, index, tuple(map(self.array, part.get("present", ())))))
        chosen = None if found["chosen"] is None else column(found["chosen"])
        geometry = Geometry(str(found["dimension"]), tuple(parts), chosen)
        check_geometry(geometry)
        return geometry


def _renumbered(column: np.ndarray, count: int) -> tuple[list[int], np.ndarray]:
    """Return which rows of a table of ``count`` a column uses, and the column in numbers of these; -1 stays.

    >>> _renumbered(np.array([7, -1, 7]), 10)
    ([7], array([ 0, -1,  0], dtype=int32))
    """
    if len(column) and not -1 <= column.min() <= column.max() < count:
        raise ValueError("a column that points beyond its table")
    if len(column) < _FEW:
        used = [n for n in sorted(set(column.tolist())) if n >= 0]
    else:
        used = used_rows(column[column >= 0], count).tolist()
    if used == list(range(len(used))):
        return used, column
    return used, np.where(column < 0, -1, np.searchsorted(used, column)).astype(np.int32)


def _untemplate(found: Mapping[str, Any]) -> Template:
    others = {k: unplain(v) for k, v in found.items() if k not in ("encoding", "steps")}
    steps = tuple(Step(u, c, _dtype(d), None if e is None else _unencoding(e), *kind) for u, c, d, e, *kind in found["steps"])
    made = Template(**others, encoding=_unencoding(found["encoding"]), steps=steps)
    check_template(made)
    return made


def _unencoding(found: Any) -> Encoding:
    fields_ = unplain(found)
    return Encoding(**{**fields_, **{name: _dtype(fields_[name]) for name in _ENCODED_DTYPES}})
