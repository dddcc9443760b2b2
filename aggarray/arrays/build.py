"""How do sub-arrays placed by hand become a matrix of partitions?

Locations and shapes are checked in columns, so that a hundred thousand pieces take seconds; `tiling.tile` then cuts them
where their edges do not align.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from aggarray.arrays.subarray import SubArray
from aggarray.cf.units import Conversion, conversion_between, normal_calendar
from aggarray.cf.units.temperature import MIXED, combined
from aggarray.errors import AggregationError, UnitsError
from aggarray.partition.conform import conform
from aggarray.partition.matrix import Matrix, Parts, ReferenceBuilder, References, Step, Template
from aggarray.partition.tiling import Cells, tile

Location = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class MasterParameters:
    """What the caller fixed of a master: its units and calendar (None: the first piece's) and dtype (None: the common one)."""

    units: str | None = None
    calendar: str | None = None
    dtype: np.dtype[Any] | None = None


def from_subarrays(
    pieces: list[tuple[Location, SubArray]],
    dimensions: tuple[str, ...],
    shape: Sequence[int] | None,
    directions: Sequence[bool] | None,
    wanted: MasterParameters,
) -> tuple[Matrix, Step]:
    """Return the matrix of pieces at their locations, and units and dtype of the master.

    Errors as in `MasterArray.from_subarrays`.
    """
    if len(set(dimensions)) != len(dimensions):
        raise AggregationError(f"dimensions {dimensions}: give each name once")
    forward = (True,) * len(dimensions) if directions is None else tuple(bool(d) for d in directions)
    if len(forward) != len(dimensions):
        raise AggregationError(f"{len(forward)} directions for {len(dimensions)} dimensions: give one of each")
    builder = ReferenceBuilder()
    renamed: dict[int, tuple[Template, Template]] = {}
    for number, item in enumerate(pieces):
        piece = _subarray(item, number)
        template = renamed.setdefault(id(piece.template), (piece.template, _named_as(piece.template, dimensions)))[1]
        builder.add(template, piece.uri, piece.source)
    references = builder.build()
    boxes = _boxes(pieces, dimensions)
    size = _size(boxes, shape, dimensions)
    _check_extents(references, boxes, dimensions)
    step = _common_step(references, wanted)
    refs = np.arange(len(pieces), dtype=np.int32)
    cells = Cells(dimensions, forward, boxes, refs, Parts(), references)
    return tile(cells, size, name=lambda number: _piece_name(references, number)), step


def _subarray(item: Any, number: int) -> SubArray:
    """Return the sub-array of a (location, sub-array) pair."""
    if isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[1], SubArray):
        # What so far only an index has told of is looked at: units and dtype of the master may hang on it.
        return item[1].settled()
    found = (
        f"a pair with {type(item[1]).__name__}" if isinstance(item, tuple | list) and len(item) == 2 else type(item).__name__
    )
    raise AggregationError(f"piece {number} is {found}: give (location, SubArray); SubArray.from_array takes any array")


def _named_as(template: Template, dimensions: tuple[str, ...]) -> Template:
    """Give nameless dimensions the master's names, by position."""
    nameless = tuple(f"dim_{i}" for i in range(len(template.dimensions)))
    if template.dimensions == nameless and len(nameless) == len(dimensions) and not set(nameless) & set(dimensions):
        return replace(template, dimensions=dimensions)
    return template


def _boxes(pieces: list[tuple[Location, SubArray]], dimensions: tuple[str, ...]) -> np.ndarray:
    locations = [location for location, _ in pieces]
    try:
        boxes = np.array(locations if pieces else np.zeros((0, len(dimensions), 2)))
        if not dimensions and boxes.size == 0:
            boxes = boxes.reshape(len(pieces), 0, 2)
        numbers = boxes.dtype.kind in "iu" or all(map(_whole_numbers, locations))
        whole = boxes.astype(np.int64)
    except (ValueError, TypeError, OverflowError):
        raise _misfit(locations, dimensions) from None
    if boxes.shape != (len(pieces), len(dimensions), 2) or not numbers or (whole != boxes).any():
        raise _misfit(locations, dimensions)
    bad = np.flatnonzero(((whole[:, :, 0] < 0) | (whole[:, :, 1] < whole[:, :, 0])).any(axis=1))
    if bad.size:
        raise AggregationError(f"piece {bad[0]}: location {locations[bad[0]]}: give 0 <= start <= stop per dimension")
    return whole


def _whole_numbers(location: Any) -> bool:
    """Tell whether a location is of whole numbers alone; NumPy's unsigned ones next to Python's count too."""
    numbers = (n for pair in location for n in pair)
    return all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in numbers)


def _misfit(locations: list[Location], dimensions: tuple[str, ...]) -> AggregationError:
    """Name the first location that is not one (start, stop) of integers per dimension."""

    def fits(location: Any) -> bool:
        pair = np.shape(location) == (len(dimensions), 2) or (not dimensions and len(location) == 0)
        return pair and _whole_numbers(location)

    for number, location in enumerate(locations):
        try:
            if fits(location):
                continue
        except (ValueError, TypeError):
            pass
        return AggregationError(
            f"piece {number}: location {location!r}: give one (start, stop) of integers for each of {dimensions}"
        )
    return AggregationError(f"locations: give one (start, stop) of integers for each of {dimensions}")


def _size(boxes: np.ndarray, shape: Any, dimensions: tuple[str, ...]) -> tuple[int, ...]:
    if shape is None:
        if not len(boxes) and dimensions:
            raise AggregationError("no pieces and no shape: give either")
        return tuple(int(n) for n in boxes[:, :, 1].max(axis=0)) if dimensions else ()
    sizes = list(shape) if isinstance(shape, Sequence | np.ndarray) else [shape]
    if len(sizes) != len(dimensions) or not all(_is_size(n) for n in sizes):
        raise AggregationError(f"shape {shape!r} for dimensions {dimensions}: give one whole number below 2**63 for each")
    beyond = np.argwhere(boxes[:, :, 1] > np.asarray(sizes, np.int64)) if dimensions else np.zeros((0, 2), int)
    if len(beyond):
        piece, d = beyond[0]
        reach = boxes[piece, d, 1]
        raise AggregationError(
            f"piece {piece} reaches {reach} along {dimensions[d]}, beyond its size {sizes[d]}: give a larger shape"
        )
    return tuple(int(n) for n in sizes)


def _is_size(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool) and 0 <= int(number) < 2**63


def _check_extents(references: References, boxes: np.ndarray, dimensions: tuple[str, ...]) -> None:
    """Compare the size of each location with that of its sub-array."""
    extents = boxes[:, :, 1] - boxes[:, :, 0]
    for number, template in enumerate(references.templates):
        rows = np.flatnonzero(references.template == number)
        own = dict(zip(template.dimensions, template.shape, strict=True))
        extra = {d: n for d, n in own.items() if d not in dimensions and n != 1}
        if extra:
            raise AggregationError(
                f"{_piece_name(references, rows[0])}: dimensions {extra} are not among {dimensions}: "
                "only ones of size 1 may be left out"
            )
        for d, dimension in enumerate(dimensions):
            wrong = rows[extents[rows, d] != own.get(dimension, 1)]
            if wrong.size:
                low, high = boxes[wrong[0], d]
                raise AggregationError(
                    f"{_piece_name(references, wrong[0])}: location {dimension} {low}:{high} is of size {high - low}, "
                    f"the sub-array of size {own.get(dimension, 1)}: give a location of its size"
                )


def _piece_name(references: References, row: int) -> str:
    uri = references.uri_of(row)
    if uri is None:
        return f"piece {row} (in memory)"
    return f"piece {row} ({uri}, variable {references.variables[references.variable[row]]!r})"


def _common_step(references: References, wanted: MasterParameters) -> Step:
    """Return units and dtype of the master; errors name the piece whose units or dtype do not convert."""
    units, calendar = wanted.units, wanted.calendar
    if units is None and len(references):
        first = references.template_of(0)
        units, calendar = first.units, calendar or first.calendar
    calendar = normal_calendar(units, calendar)
    dtypes = [template.encoding.dtype for template in references.templates]
    kind = next((t.temperature for t in references.templates if t.temperature is not None), None)
    step = Step(units, calendar, np.dtype("f8"), temperature=kind)
    changes = [_checked(references, t, partial(_change, t, step)) for t in references.templates]
    step = replace(step, dtype=common_dtype(dtypes, changes) if wanted.dtype is None else wanted.dtype)
    for template in references.templates:
        # Without any values: whether units and dtypes go together is known before a file is read.
        nothing = np.empty(0, template.encoding.dtype)
        _checked(references, template, partial(conform, nothing, None, template, step))
    return step


def _change(template: Template, step: Step) -> Conversion:
    """Return the conversion of a template; UnitsError where there is none, or where it is not the same quantity."""
    if combined(template.temperature, step.temperature) == MIXED:
        raise UnitsError(f"units {template.units!r}: a temperature difference and a temperature on its scale do not join")
    return conversion_between(template, step)


def _checked(references: References, template: Template, work: Callable[[], Any]) -> Any:
    """Run ``work`` and let its errors name the first piece that follows a template."""
    try:
        return work()
    except (UnitsError, AggregationError) as error:
        row = int(np.flatnonzero(references.template == references.templates.index(template))[0])
        raise type(error)(f"{_piece_name(references, row)}: {error}") from error


def common_dtype(dtypes: Sequence[np.dtype[Any]], changes: Iterable[Conversion]) -> np.dtype[Any]:
    """Return the dtype that holds values of all: float64 for integers whose units do not convert in whole numbers.

    Raises AggregationError where there is none, such as for text and numbers.
    """
    if not dtypes:
        return np.dtype("f8")
    if len({d.kind in "iufcb" for d in dtypes}) > 1:
        raise _nothing_in_common(dtypes)
    try:
        found = np.result_type(*dtypes)
    except TypeError as error:
        raise _nothing_in_common(dtypes) from error
    return np.dtype("f8") if found.kind in "iub" and not all(c.identity or c.integer_exact for c in changes) else found


def _nothing_in_common(dtypes: Sequence[np.dtype[Any]]) -> AggregationError:
    names = ", ".join(sorted({str(d) for d in dtypes}))
    return AggregationError(f"data types {names} have nothing in common: join like with like")


def declared_fill(matrix: Matrix) -> Any:
    """Return the first missing value that a sub-array declares."""
    declared = (t.encoding.fill_value for t in matrix.references.templates)
    return next((f for f in declared if f is not None), None)
