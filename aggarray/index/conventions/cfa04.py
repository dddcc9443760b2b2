"""Reader of the aggregation variables of CFA-0.4, and of NCA before it.

Their parameters are JSON in an attribute. Each partition states its ``location`` in the master (with inclusive stops) and its
part of a sub-array. The geometry follows from the locations. Some writers use half-open stops; sizes tell the two apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from aggarray.cf.attributes import text_attribute
from aggarray.cf.units import normal_calendar
from aggarray.dataclass import NamedTuple, replace
from aggarray.errors import AggregationError
from aggarray.formats.base import Structure, Variable
from aggarray.index.conventions.foreign import (
    ForeignArrays,
    ForeignFile,
    Values,
    ordinary,
    shown,
    units_of,
    unresolved_template,
)
from aggarray.index.uris import NOWHERE, PathMap, is_url
from aggarray.partition.matrix import MAX_CELLS, Matrix, Parts, References, Template
from aggarray.partition.reference_builder import ReferenceBuilder
from aggarray.partition.tiling import Cells, tile
from aggarray.scan.resolution import NUMBER_MARK

_ARRAYS = ("cfa_array", "nca_array")
_MARKS = (*_ARRAYS, "aggregated_data")
_OWN = ("cfa_", "nca_")
_ROLES, _PRIVATE = ("cfa_variable", "nca_variable"), ("cfa_private", "nca_private")
_CORRECT, _OBJECT, _LIST, _TEXT = "correct the index", "write a JSON object", "write a JSON list", "write text"
#: Largest integer in an index.
_MAX_NUMBER = 2**62
# Blanks are removed before: a pattern that allows them anywhere takes exponential time.
_NUMBERS = r"-?\d{1,18}(?:,-?\d{1,18})*,?"
_ITEM = re.compile(rf"\[({_NUMBERS})\]|\(({_NUMBERS})\)")
_SYNTAX = "write text such as '[[0, 9, 1], (2, 5)]'"


class _CFA04:
    name, marks = "CFA-0.4", (*_ARRAYS, "cf_role")

    def recognises(self, structure: Structure) -> bool:
        """Return whether a file has variables whose partitions are JSON."""
        return any(map(_is_aggregation, structure.variables))

    def read(self, structure: Structure, values: Values, path_map: PathMap = NOWHERE) -> ForeignArrays:
        """Return the arrays of a file without reading a value.

        Raises IndexFileError with the variable and the invalid value.
        """
        source = ForeignFile(structure, values, path_map)
        variables, matrices = {}, {}
        for variable in filter(_is_aggregation, structure.variables):
            matrix = _VariableReader(source, variable).matrix()
            plain = ordinary(variable, matrix.dimensions, matrix.shape, _OWN)
            attrs = {k: v for k, v in plain.attrs.items() if not (k == "cf_role" and text_attribute(v) in _ROLES)}
            variables[variable.name], matrices[variable.name] = replace(plain, attrs=attrs), matrix
        private = {v.name for v in structure.variables if text_attribute(v.attrs.get("cf_role")) in _PRIVATE}
        return ForeignArrays(source.rewritten(variables, private), matrices)


def _is_aggregation(variable: Variable) -> bool:
    return any(a in variable.attrs for a in _ARRAYS) or text_attribute(variable.attrs.get("cf_role")) in _ROLES


class _Partition(NamedTuple):
    """Geometry of a partition; ``extents`` are -1 where unknown."""

    box: list[list[int]]
    extents: list[int]
    part: dict[str, slice | np.ndarray]
    dimensions: tuple[str, ...]
    shape: list[int] | None


class _VariableReader:
    def __init__(self, source: ForeignFile, variable: Variable) -> None:
        self.source, self.variable = source, variable
        self.json = self._load()
        attribute = next((a for a in ("cfa_dimensions", "nca_dimensions") if a in variable.attrs), None)
        self.written, self.dimensions = source.dimensions(variable, attribute) if attribute else ([], ())
        self.names = {**dict(zip(self.written, self.dimensions, strict=True)), **{d: d for d in self.dimensions}}
        self.decoding, self.steps = source.master(variable)
        self.forward = self._object(self.json, "directions")
        self._templates: dict[Any, Template] = {}
        self._files: dict[str, str] = {}

    def fault(self, what: str, number: int | None = None, hint: str | None = None) -> Exception:
        """Return an error for this variable, or for one of its partitions."""
        return self.source.fault(self.variable, what if number is None else f"partition {number}: {what}", hint)

    def _load(self) -> dict[str, Any]:
        name = next((a for a in _ARRAYS if a in self.variable.attrs), "cfa_array")
        text = self.variable.attrs.get(name)
        try:
            content = json.loads(text) if isinstance(text, str) else None
        except RecursionError:
            raise self.fault(f"{name} {shown(text)} is nested too deeply", hint=_CORRECT) from None
        except ValueError as error:
            raise self.fault(f"{name} {shown(text)} is not JSON: {error}", hint=_CORRECT) from error
        if not isinstance(content, dict) or not isinstance(content.get("Partitions"), list):
            hint = "write a JSON object with a list of Partitions"
            raise self.fault(f"{name} {shown(text)} has no list of Partitions", hint=hint)
        return content

    def _object(self, holder: dict[str, Any], *keys: str) -> dict[str, Any]:
        key = next((k for k in keys if holder.get(k) is not None), None)
        value = holder[key] if key else {}
        if not isinstance(value, dict):
            raise self.fault(f"{key} {shown(value)} is not a JSON object", hint=_OBJECT)
        return value

    def matrix(self) -> Matrix:
        """Return the matrix of all partitions; uncovered regions are missing."""
        self._check_shape()
        partitions = [self._partition(partition, number) for number, partition in enumerate(self.json["Partitions"])]
        rank, count = len(self.dimensions), len(partitions)
        boxes = np.array([p.box for p in partitions], np.int64).reshape(count, rank, 2)
        extents = np.array([p.extents for p in partitions], np.int64).reshape(count, rank)
        sizes = [self.source.dimension(name, self.variable) for name in self.written]
        boxes = self._half_open(boxes, extents, sizes)
        ends = boxes[:, :, 1].max(axis=0, initial=0).tolist()
        for d, (end, size) in enumerate(zip(ends, sizes, strict=True)):
            if size is not None and end > size:
                what = f"end {end} along {self.dimensions[d]!r} is out of range for size {size}"
                raise self.fault(what, int(boxes[:, d, 1].argmax()))
        shape = tuple(end if size is None else size for end, size in zip(ends, sizes, strict=True))
        refs, references = np.arange(count, dtype=np.int32), self._references(partitions, boxes)
        cells = Cells(self.dimensions, (True,) * rank, boxes, refs, _parts([p.part for p in partitions]), references)
        try:
            return tile(cells, shape, name=lambda n: f"partition {n}")
        except AggregationError as error:
            raise self.fault(error.what, hint=error.hint) from error

    def _references(self, partitions: Sequence[_Partition], boxes: np.ndarray) -> References:
        builder = ReferenceBuilder()
        lengths = (boxes[:, :, 1] - boxes[:, :, 0]).tolist()
        for number, (partition, written) in enumerate(zip(partitions, self.json["Partitions"], strict=True)):
            # Without a shape the sub-array has the shape of its location.
            sizes = dict(zip(self.dimensions, lengths[number], strict=True))
            shape = [sizes.get(d, 1) for d in partition.dimensions] if partition.shape is None else partition.shape
            template = self._template((tuple(shape), partition.dimensions), written, number)
            builder.add(template, *self._source_of(self._object(written, "subarray", "data"), number))
        return builder.build()

    def _check_shape(self) -> None:
        """Validate pmdimensions and pmshape, and every index against them."""
        names = self._list(self.json, "pmdimensions") or []
        unknown = [n for n in names if not isinstance(n, str) or n not in self.names]
        if unknown or len(set(names)) < len(names):
            hint = f"name dimensions of {self.dimensions}, each once"
            raise self.fault(f"pmdimensions {shown(names)} are not dimensions of the array", hint=hint)
        shape = self._integers(self.json, "pmshape")
        if shape is None:
            return
        if len(shape) != len(names) or min(shape, default=1) < 1:
            hint = f"give a positive integer for each of pmdimensions {shown(names)}"
            raise self.fault(f"pmshape {shown(shape)} does not match pmdimensions", hint=hint)
        if prod(shape) > MAX_CELLS:
            raise self.fault(f"pmshape {shown(shape)} has more than {MAX_CELLS} partitions")
        for number, partition in enumerate(self.json["Partitions"]):
            index = self._integers(partition, "index", number=number) if isinstance(partition, dict) else None
            if index and (len(index) != len(shape) or not all(0 <= i < n for i, n in zip(index, shape, strict=True))):
                raise self.fault(f"index {shown(index)} is out of range for pmshape {shown(shape)}", number)

    def _list(self, holder: dict[str, Any], *keys: str, number: int | None = None) -> list[Any] | None:
        key = next((k for k in keys if holder.get(k) is not None), None)
        items: list[Any] | None = None if key is None else holder[key]
        if items is not None and not isinstance(items, list):
            raise self.fault(f"{key} {shown(items)} is not a JSON list", number, _LIST)
        return items

    def _integers(self, holder: dict[str, Any], *keys: str, number: int | None = None) -> list[int] | None:
        items = self._list(holder, *keys, number=number)
        if items is not None and not all(type(n) is int and -1 <= n <= _MAX_NUMBER for n in items):
            raise self.fault(f"{keys[0]} {shown(items)} are not integers in range", number, "write integers from 0 on")
        return items

    def _partition(self, partition: Any, number: int) -> _Partition:
        if not isinstance(partition, dict):
            raise self.fault(f"{shown(partition)} is not a JSON object", number, _OBJECT)
        sub = self._object(partition, "subarray", "data")
        pdimensions = self._list(partition, "pdimensions", number=number)
        names = self.dimensions if pdimensions is None else map(str, pdimensions)
        dimensions = tuple(self.names.get(name, name) for name in names)
        shape = self._integers(sub, "shape", "pshape", number=number)
        if len(set(dimensions)) < len(dimensions):
            raise self.fault(f"pdimensions {shown(pdimensions)} repeat a dimension", number, "name each dimension once")
        if shape is not None and (len(shape) != len(dimensions) or min(shape, default=0) < 0):
            what = f"sub-array of shape {shown(shape)} does not match the dimensions {dimensions}"
            raise self.fault(what, number, "give pdimensions")
        part = self._part(partition.get("part"), dimensions, shape, number)
        extents = {d: _length(p) for d, p in part.items()} or dict(zip(dimensions, shape or (), strict=False))
        wrong = [d for d in dimensions if d not in self.dimensions and extents.get(d, 1) != 1]
        if wrong:
            what = f"pdimensions {shown(wrong)} are not dimensions of the array"
            raise self.fault(what, number, "only dimensions of size 1 may be added")
        expected = [-1 if shape is None and d in dimensions else extents.get(d, 1) for d in self.dimensions]
        return _Partition(self._location(partition, expected, number), expected, part, dimensions, shape)

    def _part(self, written: Any, dimensions: tuple[str, ...], shape: Any, number: int) -> dict[str, slice | np.ndarray]:
        try:
            part = parse_part(written)
            if part and (shape is None or len(part) != len(dimensions)):
                hint = f"give one item for each of {dimensions}, and the sub-array's shape"
                raise PartError("does not match the sub-array", hint)
            for indices, size in zip(part, shape or (), strict=False):
                if _length(indices) and (indices.stop if isinstance(indices, slice) else int(indices[-1]) + 1) > size:
                    raise PartError(f"is out of range for the sub-array's shape {shown(shape)}")
        except PartError as error:
            raise self.fault(f"part {shown(written)} {error}", number, error.hint) from error
        return dict(zip(dimensions, part, strict=False))

    def _location(self, partition: dict[str, Any], expected: list[int], number: int) -> list[list[int]]:
        location = self._list(partition, "location", number=number)
        if location is None:
            if len(self.json["Partitions"]) > 1:
                raise self.fault("no location", number, "only the single partition of an array may omit it")
            stored = (self.source.dimension(name, self.variable) for name in self.written)
            sizes = [n if n is not None else max(e, 0) for n, e in zip(stored, expected, strict=True)]
            return [[0, n - 1] for n in sizes]
        pairs = [self._integers({"location": pair}, "location", number=number) for pair in location]
        if len(pairs) != len(self.dimensions) or not all(p and len(p) == 2 and 0 <= p[0] <= p[1] + 1 for p in pairs):
            what = f"location {shown(location)} does not match the dimensions"
            raise self.fault(what, number, f"give [start, stop] for each of {self.dimensions}")
        return [p for p in pairs if p is not None]

    def _half_open(self, boxes: np.ndarray, extents: np.ndarray, sizes: Sequence[int | None]) -> np.ndarray:
        """Return the boxes with exclusive stops, from inclusive or exclusive ones."""
        spans, has_size = boxes[:, :, 1] - boxes[:, :, 0], extents >= 0
        inclusive: np.ndarray = np.add(boxes, (0, 1))
        if not has_size.any():
            beyond = any(n is not None and (boxes[:, d, 1] >= n).any() for d, n in enumerate(sizes))
            return boxes if beyond else inclusive
        mismatched = has_size & (spans + 1 != extents)
        if not mismatched.any():
            return inclusive
        if (spans[has_size] == extents[has_size]).all():
            return boxes
        number, d = (int(i) for i in np.argwhere(mismatched)[0])
        box, size = boxes[number, d].tolist(), int(extents[number, d])
        what = f"length of location {box} along {self.dimensions[d]!r} differs from that of its sub-array, {size}"
        raise self.fault(what, number)

    def _template(self, layout: tuple[tuple[int, ...], tuple[str, ...]], partition: dict[str, Any], number: int) -> Template:
        shape, dimensions = layout
        units, calendar = (
            next((partition[k] for k in keys if isinstance(partition.get(k), str) and partition[k].strip()), None)
            for keys in (("punits", "units"), ("pcalendar", "calendar"))
        )
        against = self._list(partition, "reverse", "flip", number=number) or []
        reversed_ = {self.names.get(str(n), str(n)) for n in against}
        directions = self._object(partition, "pdirections")
        reversed_ |= {d for d, forward in directions.items() if bool(forward) != bool(self.forward.get(d, True))}
        if not reversed_ <= set(dimensions):
            what = f"reverse {shown(sorted(reversed_))} names other dimensions than the sub-array's"
            raise self.fault(what, number, f"name dimensions of {dimensions}")
        key = (shape, dimensions, frozenset(reversed_), units, calendar)
        if key not in self._templates:
            calendar = normal_calendar(units, calendar or units_of(self.variable)[1])
            forward = tuple(d not in reversed_ for d in dimensions)
            unresolved = unresolved_template(shape, dimensions, self.decoding, self.steps)
            self._templates[key] = replace(unresolved, directions=forward, units=units, calendar=calendar)
        return self._templates[key]

    def _source_of(self, sub: dict[str, Any], number: int) -> tuple[str, str]:
        written, name, code = sub.get("file") or "", sub.get("ncvar") or "", sub.get("varid")
        if not isinstance(written, str) or not isinstance(name, str):
            raise self.fault(f"file {shown(written)} or ncvar {shown(name)} is not text", number, _TEXT)
        if written not in self._files:
            self._files[written] = self._resolved(written)
        path = self._files[written]
        name = name.removeprefix("/")
        if not name:
            if type(code) is not int or code < 0:
                raise self.fault(f"neither ncvar nor varid ({shown(code)}) names a variable", number)
            name = f"{NUMBER_MARK}{code}"
        if path == self.source.structure.uri and not name.startswith(NUMBER_MARK):
            self.source.check_own(self.variable, [name], _MARKS)
        return path, name

    def _resolved(self, written: str) -> str:
        if not written:
            return self.source.structure.uri
        base = self.json.get("base")
        if base is not None and not isinstance(base, str):
            raise self.fault(f"base {shown(base)} is not text", hint=_TEXT)
        if base and not written.startswith("/") and not is_url(written):
            written = f"{base.rstrip('/')}/{written}"
        # These are names, not references: a percent sign is part of the name.
        return self.source.resolve(self.variable, written if is_url(written) else written.replace("%", "%25"))


def _length(indices: slice | np.ndarray) -> int:
    return len(range(indices.start, indices.stop, indices.step)) if isinstance(indices, slice) else len(indices)


def _parts(listed: list[dict[str, slice | np.ndarray]]) -> Parts:
    starts: dict[str, np.ndarray] = {}
    steps: dict[str, np.ndarray] = {}
    picks: list[np.ndarray] = []
    for number, part in enumerate(listed):
        for axis, indices in part.items():
            if axis not in starts:
                starts[axis], steps[axis] = np.zeros(len(listed), np.int64), np.ones(len(listed), np.int64)
            if isinstance(indices, slice):
                starts[axis][number], steps[axis][number] = indices.start, indices.step
            else:
                steps[axis][number] = -len(picks)
                picks.append(indices)
    return Parts(starts, steps, tuple(picks))


class PartError(ValueError):
    """Invalid part; the message omits the part, ``hint`` says what to do."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


def parse_part(written: Any) -> list[slice | np.ndarray]:
    """Return the part by dimension: slices, or increasing positions.

    A part lists one item per dimension: ``[start, stop, step]`` with an inclusive stop, or ``(i, j, k)`` for single positions.
    [] is all of the sub-array.

    >>> parse_part("[[2, 6, 2], (0, 3)]")
    [slice(2, 7, 2), array([0, 3])]
    >>> parse_part("[0, 4, 1]"), parse_part("[]")
    ([slice(0, 5, 1)], [])
    """
    if written is None or (isinstance(written, str | list) and not written):
        return []
    if isinstance(written, list):
        written = str(written)
    if not isinstance(written, str):
        raise PartError("is not a part", _SYNTAX)
    text = "".join(written.split())
    if text in ("[]", "()"):
        return []
    if not _ITEM.fullmatch(text):
        if text[:1] + text[-1:] not in ("[]", "()"):
            raise PartError("is not a part", _SYNTAX)
        text = text[1:-1]
    if _ITEM.sub("", text).strip(","):
        raise PartError("is not a part", _SYNTAX)
    return [_indices(match) for match in _ITEM.finditer(text)]


def _indices(match: re.Match[str]) -> slice | np.ndarray:
    numbers = [int(n) for n in (match[1] or match[2]).split(",") if n.strip()]
    if match[1]:
        start, stop, step = [*numbers, 1][:3] if len(numbers) in (2, 3) else (-1, -1, 0)
        if start < 0 or stop < start - 1 or step < 1:
            hint = "give [start, stop, step], the stop inclusive, the step at least 1"
            raise PartError(f"has the invalid item [{match[1]}]", hint)
        last = start + (stop - start) // step * step
        return slice(start, last + 1 if stop >= start else start, step)
    picked = np.array(numbers, np.int64)
    if (picked < 0).any() or (np.diff(picked) <= 0).any():
        raise PartError(f"has the invalid item ({match[2]})", "give increasing positions from 0 on")
    return picked


CONVENTION = _CFA04()
