"""Matrix of partitions from sub-arrays at given locations.

Locations and shapes are checked in columns, so that a hundred thousand pieces take seconds. `tiling.tile` then cuts pieces
whose edges do not align.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from aggarray.arrays.subarray import SubArray
from aggarray.cf.units import normal_calendar
from aggarray.cf.units.compatibility import conversion_between
from aggarray.cf.units.linear import Conversion
from aggarray.cf.units.temperature import MIXED, combined
from aggarray.dataclass import dataclass, replace
from aggarray.errors import AggregationError, UnitsError
from aggarray.partition.conform import conform
from aggarray.partition.matrix import Matrix, Parts, References, Step, Template
from aggarray.partition.reference_builder import ReferenceBuilder
from aggarray.partition.tiling import Cells, tile

Location = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class MasterParameters:
    """Requested units, calendar and dtype of a master; None: not requested."""

    units: str | None = None
    calendar: str | None = None
    dtype: np.dtype[Any] | None = None


def from_subarrays(
    pieces: list[tuple[Location, SubArray]],
    dimensions: tuple[str, ...],
    shape: Sequence[int] | None,
    directions: Sequence[bool] | None,
    parameters: MasterParameters,
) -> tuple[Matrix, Step]:
    """Return the matrix of located pieces, and units and dtype of the master.

    Errors as in `MasterArray.from_subarrays`.
    """
    if len(set(dimensions)) != len(dimensions):
        raise AggregationError(f"dimensions {dimensions} repeat a name", hint="give each name once")
    forward = (True,) * len(dimensions) if directions is None else tuple(bool(d) for d in directions)
    if len(forward) != len(dimensions):
        what = f"{len(forward)} directions for {len(dimensions)} dimensions"
        raise AggregationError(what, hint="give one per dimension")
    builder = ReferenceBuilder()
    renamed: dict[int, tuple[Template, Template]] = {}
    for number, item in enumerate(pieces):
        is_pair = isinstance(item, tuple | list) and len(item) == 2
        if not is_pair or not isinstance(item[1], SubArray):
            what = f"piece {number} is {f'a pair with {type(item[1]).__name__}' if is_pair else type(item).__name__}"
            raise AggregationError(what, hint="give (location, SubArray); SubArray.from_array takes any array")
        piece = item[1].resolved()  # units and dtype of the master may depend on a template that is not verified yet
        template = renamed.setdefault(id(piece.template), (piece.template, _named_as(piece.template, dimensions)))[1]
        builder.add(template, piece.uri, piece.source)
    references = builder.build()
    boxes = _boxes([location for location, _ in pieces], dimensions)
    size = _size(boxes, shape, dimensions)
    _check_extents(references, boxes, dimensions)
    step = _common_step(references, parameters)
    refs = np.arange(len(pieces), dtype=np.int32)
    cells = Cells(dimensions, forward, boxes, refs, Parts(), references)

    def describe(row: int) -> str:
        uri, variable = _source(references, row)
        return f"piece {row} (in memory)" if uri is None else f"piece {row} ({uri}, variable {variable!r})"

    return tile(cells, size, name=describe), step


def _named_as(template: Template, dimensions: tuple[str, ...]) -> Template:
    """Rename unnamed dimensions to those of the master, by position."""
    nameless = tuple(f"dim_{i}" for i in range(len(template.dimensions)))
    if template.dimensions == nameless and len(nameless) == len(dimensions) and not set(nameless) & set(dimensions):
        return replace(template, dimensions=dimensions)
    return template


def _boxes(locations: list[Location], dimensions: tuple[str, ...], first: int = 0) -> np.ndarray:
    """Return locations as int64 (pieces, dimensions, 2); ``first`` for errors."""
    hint = f"give one (start, stop) of integers for each of {dimensions}"
    shape = len(locations), len(dimensions), 2
    try:
        boxes = np.array(locations)
        boxes = boxes.reshape(shape) if not (boxes.size and dimensions) else boxes
        integers = boxes.astype(np.int64)
        all_integers = boxes.dtype.kind in "iu" or all(map(_has_integers, locations))
        is_valid = boxes.shape == shape and all_integers and not (integers != boxes).any()
    except (ValueError, TypeError, OverflowError):
        is_valid = False
    if not is_valid:
        for number, location in enumerate(locations if len(locations) > 1 else ()):
            _boxes([location], dimensions, number)  # raises the error of the first invalid one
        raise AggregationError(f"piece {first} has the invalid location {locations[0]!r}", hint=hint)
    bad = np.flatnonzero(((integers[:, :, 0] < 0) | (integers[:, :, 1] < integers[:, :, 0])).any(axis=1))
    if bad.size:
        what = f"piece {first + bad[0]} has the invalid location {locations[bad[0]]}"
        raise AggregationError(what, hint="give 0 <= start <= stop per dimension")
    return integers


def _has_integers(location: Any) -> bool:
    numbers = (n for pair in location for n in pair)
    return all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in numbers)


def _size(boxes: np.ndarray, shape: Any, dimensions: tuple[str, ...]) -> tuple[int, ...]:
    if shape is None:
        if not len(boxes) and dimensions:
            raise AggregationError("neither pieces nor a shape are given", hint="give at least one of them")
        return tuple(int(n) for n in boxes[:, :, 1].max(axis=0)) if dimensions else ()
    sizes = list(shape) if isinstance(shape, Sequence | np.ndarray) else [shape]
    if len(sizes) != len(dimensions) or not _has_integers([sizes]) or not all(0 <= int(n) < 2**63 for n in sizes):
        what = f"invalid shape {shape!r} for dimensions {dimensions}"
        raise AggregationError(what, hint="give one integer from 0 to 2**63 - 1 for each")
    beyond = np.argwhere(boxes[:, :, 1] > np.asarray(sizes, np.int64)) if dimensions else np.zeros((0, 2), int)
    if len(beyond):
        piece, d = beyond[0]
        what = f"piece {piece} ends at {boxes[piece, d, 1]} along {dimensions[d]}, beyond the size {sizes[d]}"
        raise AggregationError(what, hint="give a larger shape")
    return tuple(int(n) for n in sizes)


def _check_extents(references: References, boxes: np.ndarray, dimensions: tuple[str, ...]) -> None:
    extents = boxes[:, :, 1] - boxes[:, :, 0]
    for number, template in enumerate(references.templates):
        rows = np.flatnonzero(references.template == number)
        sizes = dict(zip(template.dimensions, template.shape, strict=True))
        extra = {d: n for d, n in sizes.items() if d not in dimensions and n != 1}
        if extra:
            path, variable = _source(references, rows[0])
            what = f"piece {rows[0]} has dimensions {extra} that are not among {dimensions}"
            raise AggregationError(what, path=path, variable=variable, hint="only dimensions of size 1 may be left out")
        for d, dimension in enumerate(dimensions):
            wrong = rows[extents[rows, d] != sizes.get(dimension, 1)]
            if wrong.size:
                low, high = boxes[wrong[0], d]
                path, variable = _source(references, wrong[0])
                what = f"piece {wrong[0]}: location {dimension} {low}:{high} has size {high - low}, "
                what += f"the sub-array size {sizes.get(dimension, 1)}"
                raise AggregationError(what, path=path, variable=variable, hint="give a location of its size")


def _source(references: References, row: int) -> tuple[str | None, str | None]:
    uri = references.uri_of(row)
    return uri, None if uri is None else references.variables[references.variable[row]]


def _common_step(references: References, parameters: MasterParameters) -> Step:
    units, calendar = parameters.units, parameters.calendar
    if units is None and len(references):
        first = references.template_of(0)
        units, calendar = first.units, calendar or first.calendar
    calendar = normal_calendar(units, calendar)
    dtypes = [template.encoding.dtype for template in references.templates]
    temperature = next((t.temperature for t in references.templates if t.temperature is not None), None)
    step = Step(units, calendar, np.dtype("f8"), temperature=temperature)
    conversions = []
    for template in references.templates:
        with _located(references, template):
            if combined(template.temperature, step.temperature) == MIXED:
                what = "a temperature difference and a temperature on its scale do not join"
                raise UnitsError(f"units {template.units!r}: {what}")
            conversions.append(conversion_between(template, step))
    step = replace(step, dtype=common_dtype(dtypes, conversions) if parameters.dtype is None else parameters.dtype)
    for template in references.templates:
        # An empty conversion raises the errors of units and dtypes before a file is read.
        with _located(references, template):
            conform(np.empty(0, template.encoding.dtype), None, template, step)
    return step


@contextmanager
def _located(references: References, template: Template) -> Iterator[None]:
    try:
        yield
    except (UnitsError, AggregationError) as error:
        row = int(np.flatnonzero(references.template == references.templates.index(template))[0])
        error.path, error.variable = _source(references, row)
        error.args = (f"piece {row}{' (in memory)' if error.path is None else ''}:", *error.args)
        raise


def common_dtype(dtypes: Sequence[np.dtype[Any]], conversions: Iterable[Conversion]) -> np.dtype[Any]:
    """Return the dtype that holds the values of all dtypes, once converted.

    It is float64 for integers whose units do not convert exactly. Raises AggregationError if there is none, such as for text
    and numbers.
    """
    if not dtypes:
        return np.dtype("f8")
    error = AggregationError(f"no common data type of {', '.join(sorted({str(d) for d in dtypes}))}")
    if len({d.kind in "iufcb" for d in dtypes}) > 1:
        raise error
    try:
        common = np.result_type(*dtypes)
    except TypeError:
        raise error from None
    exact = common.kind not in "iub" or all(c.identity or c.integer_exact for c in conversions)
    return common if exact else np.dtype("f8")


def declared_fill(matrix: Matrix) -> Any:
    """Return the first missing value that a sub-array declares, or None."""
    declared = (t.encoding.fill_value for t in matrix.references.templates)
    return next((f for f in declared if f is not None), None)
