"""How do sub-arrays placed by hand become a matrix of partitions?

Locations and shapes are checked in columns, so that a hundred thousand pieces take seconds; `tiling.tile` then cuts them
where their edges do not align.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggarray.errors import AggregationError, UnitsError
from aggarray.master.subarray import SubArray
from aggarray.table import Matrix, Parts, ReferenceBuilder, References, Step, Template
from aggarray.tiling import Cells, tile
from aggarray.units import conversion, normal_calendar

Location = Sequence[tuple[int, int]]
Units = tuple[str | None, str | None]


def from_subarrays(
    pieces: list[tuple[Location, SubArray]],
    dimensions: tuple[str, ...],
    shape: Sequence[int] | None,
    directions: Sequence[bool] | None,
    wanted: Step | Units,
) -> tuple[Matrix, Step]:
    """Return the matrix of pieces at their locations, and units and dtype of the master.

    ``wanted``: what the caller fixed of these: units and calendar (None: the first piece's), and the dtype or not (the
    common one). Errors as in `MasterArray.from_subarrays`.
    """
    if len(set(dimensions)) != len(dimensions):
        raise AggregationError(f"dimensions {dimensions}: give each name once")
    forward = (True,) * len(dimensions) if directions is None else tuple(bool(d) for d in directions)
    if len(forward) != len(dimensions):
        raise AggregationError(f"{len(forward)} directions for {len(dimensions)} dimensions: give one of each")
    builder = ReferenceBuilder()
    renamed: dict[int, tuple[Template, Template]] = {}
    for _, piece in pieces:
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


def _named_as(template: Template, dimensions: tuple[str, ...]) -> Template:
    """Give nameless dimensions the master's names, by position."""
    nameless = tuple(f"dim_{i}" for i in range(len(template.dimensions)))
    if template.dimensions == nameless and len(nameless) == len(dimensions):
        return replace(template, dimensions=dimensions)
    return template


def _boxes(pieces: list[tuple[Location, SubArray]], dimensions: tuple[str, ...]) -> np.ndarray:
    locations = [location for location, _ in pieces]
    try:
        boxes = np.array(locations if pieces else np.zeros((0, len(dimensions), 2)))
        boxes = boxes.reshape(len(pieces), -1, 2) if boxes.size else np.zeros((len(pieces), len(dimensions), 2))
        whole = boxes.astype(np.int64)
    except (ValueError, TypeError):
        raise _misfit(locations, dimensions) from None
    if boxes.shape[1] != len(dimensions) or (whole != boxes).any():
        raise _misfit(locations, dimensions)
    bad = np.flatnonzero(((whole[:, :, 0] < 0) | (whole[:, :, 1] < whole[:, :, 0])).any(axis=1))
    if bad.size:
        raise AggregationError(f"piece {bad[0]}: location {locations[bad[0]]}: give 0 <= start <= stop per dimension")
    return whole


def _misfit(locations: list[Location], dimensions: tuple[str, ...]) -> AggregationError:
    """Name the first location that is not one (start, stop) of integers per dimension."""

    def fits(location: Any) -> bool:
        pair = np.shape(location) == (len(dimensions), 2) or (not dimensions and len(location) == 0)
        return pair and np.asarray(location).dtype.kind in "iu"

    for number, location in enumerate(locations):
        try:
            if fits(location):
                continue
        except (ValueError, TypeError):
            pass
        return AggregationError(f"piece {number}: location {location!r}: give one (start, stop) of integers for each of {dimensions}")
    return AggregationError(f"locations: give one (start, stop) of integers for each of {dimensions}")


def _size(boxes: np.ndarray, shape: Sequence[int] | None, dimensions: tuple[str, ...]) -> tuple[int, ...]:
    if shape is None:
        if not len(boxes) and dimensions:
            raise AggregationError("no pieces and no shape: give either")
        return tuple(int(n) for n in boxes[:, :, 1].max(axis=0)) if dimensions else ()
    if len(shape) != len(dimensions) or any(n < 0 for n in shape):
        raise AggregationError(f"shape {tuple(shape)} for dimensions {dimensions}: give one size >= 0 for each")
    beyond = np.argwhere(boxes[:, :, 1] > np.asarray(shape, np.int64)) if dimensions else np.zeros((0, 2), int)
    if len(beyond):
        piece, d = beyond[0]
        raise AggregationError(f"piece {piece} reaches {boxes[piece, d, 1]} along {dimensions[d]}, beyond its size {shape[d]}: give a larger shape")
    return tuple(int(n) for n in shape)


def _check_extents(references: References, boxes: np.ndarray, dimensions: tuple[str, ...]) -> None:
    """Compare the size of each location with that of its sub-array."""
    extents = boxes[:, :, 1] - boxes[:, :, 0]
    for number, template in enumerate(references.templates):
        rows = np.flatnonzero(references.template == number)
        own = dict(zip(template.dimensions, template.shape, strict=True))
        extra = {d: n for d, n in own.items() if d not in dimensions and n != 1}
        if extra:
            raise AggregationError(f"{_piece_name(references, rows[0])}: dimensions {extra} are not among {dimensions}: only ones of size 1 may be left out")
        for d, dimension in enumerate(dimensions):
            wrong = rows[extents[rows, d] != own.get(dimension, 1)]
            if wrong.size:
                low, high = boxes[wrong[0], d]
                raise AggregationError(
                    f"{_piece_name(references, wrong[0])}: location {dimension} {low}:{high} is of size {high - low}, the sub-array of size {own.get(dimension, 1)}"
                )


def _piece_name(references: References, row: int) -> str:
    uri = references.uri_of(row)
    return f"piece {row} (in memory)" if uri is None else f"piece {row} ({uri}, variable {references.variables[references.variable[row]]!r})"


def _common_step(references: References, wanted: Step | Units) -> Step:
    """Return units and dtype of the master; UnitsError names the piece whose units do not convert."""
    units, calendar = (wanted.units, wanted.calendar) if isinstance(wanted, Step) else wanted
    if units is None and len(references):
        first = references.template_of(0)
        units, calendar = first.units, calendar or first.calendar
    calendar = normal_calendar(units, calendar)
    dtypes, exact = [], True
    for number, template in enumerate(references.templates):
        try:
            change = conversion(template.units, template.calendar, units, calendar)
        except UnitsError as error:
            row = int(np.flatnonzero(references.template == number)[0])
            raise UnitsError(f"{_piece_name(references, row)}: {error}") from error
        dtypes.append(template.encoding.dtype)
        exact &= change.identity or change.integer_exact
    if isinstance(wanted, Step):
        return Step(units, calendar, wanted.dtype)
    return Step(units, calendar, common_dtype(dtypes, exact))


def common_dtype(dtypes: Sequence[np.dtype[Any]], exact: bool) -> np.dtype[Any]:
    """Return the dtype that holds values of all: float64 for integers whose units do not convert in integers.

    Raises AggregationError where there is none, such as for text and numbers.
    """
    if not dtypes:
        return np.dtype("f8")
    if len({d.kind in "iufcb" for d in dtypes}) > 1:
        raise AggregationError(f"data types {', '.join(sorted({str(d) for d in dtypes}))} have nothing in common: join like with like")
    try:
        found = np.result_type(*dtypes)
    except TypeError as error:
        names = ", ".join(sorted({str(d) for d in dtypes}))
        raise AggregationError(f"data types {names} have nothing in common: join like with like") from error
    return np.dtype("f8") if found.kind in "iub" and not exact else found
