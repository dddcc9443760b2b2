"""Reference times that count from a date of each file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from aggarray.aggregate.candidate import EPSILON
from aggarray.arrays.build import common_dtype
from aggarray.cf.attributes import text_attribute
from aggarray.cf.units import is_reference_time, normal_calendar
from aggarray.cf.units.compatibility import conversion
from aggarray.cf.units.linear import Conversion
from aggarray.dataclass import replace
from aggarray.formats.base import Variable
from aggarray.partition.conform import convert
from aggarray.partition.matrix import Step, Template
from aggarray.scan.structure_table import StructureTable

#: Attributes of packed values, and of values that may be missing.
_ENCODING = frozenset(("scale_factor", "add_offset", "_Unsigned", "missing_value", "valid_min", "valid_max", "valid_range"))

#: Number of files whose arrays exist at the same time.
_BLOCK = 1024


def counts_time(variable: Variable, units: Any) -> bool:
    """Return whether units of a coordinate variable may be those of one file."""
    of_numbers = variable.dtype.kind == "f" or variable.dtype == np.int64
    of_one = variable.dimensions in ((variable.name,), ())
    return of_numbers and of_one and is_reference_time(text_attribute(units))


def units_of(table: StructureTable, row: int, position: int) -> Any:
    """Return the units of a variable in one file."""
    own: Sequence[Any] = table.own[row].get(position, ()) if row in table.own else ()
    names = own[::2]
    return own[2 * names.index("units") + 1] if "units" in names else table.template(row, position).get("units")


def counted_with(variables: Sequence[Variable], coordinate: int) -> dict[int, Variable] | None:
    """Return a coordinate and its bounds by position; None if not convertible."""
    v = variables[coordinate]
    bounds = v.attrs.get("bounds", v.attrs.get("climatology"))
    counted = {p: b for p, b in enumerate(variables) if p == coordinate or b.name == bounds}
    plain = all(_is_plain(b.attrs) and b.dtype.kind in "if" for b in counted.values())
    own = any("units" in b.attrs or "calendar" in b.attrs for p, b in counted.items() if p != coordinate)
    return counted if plain and not own else None


def _is_plain(attrs: Mapping[str, Any]) -> bool:
    fill = np.asarray(attrs.get("_FillValue", np.nan))
    return _ENCODING.isdisjoint(attrs) and fill.dtype.kind == "f" and bool(np.isnan(fill).all())


class OwnUnits:
    """Units of a coordinate, which its bounds share, in files in order.

    ``stated``: by file; values are converted to those of the first.
    """

    def __init__(self, stated: Sequence[str], calendar: Any) -> None:
        self.stated, self._calendar = stated, normal_calendar(stated[0], text_attribute(calendar))
        first = stated[0], self._calendar
        self._inexact, self._offset = list[Conversion](), 0.0
        for units in set(stated):
            one = conversion(units, self._calendar, *first)
            self._offset = max(self._offset, abs(float(one.offset)))
            if not (self._inexact or one.identity or one.integer_exact):
                self._inexact.append(one)

    def of(self, units: str, template: Template) -> Template:
        """Return a template in other units."""
        return replace(template, units=units, calendar=self._calendar)

    def convert(self, arrays: Iterable[np.ndarray], axis: int = 0) -> np.ndarray:
        """Return the arrays of the files, in the units of the first, as one."""
        pairs, blocks = zip(self.stated, arrays, strict=True), list[np.ndarray]()
        while block := list(islice(pairs, _BLOCK)):
            dtype = block[0][1].dtype
            target = Step(self.stated[0], self._calendar, common_dtype([dtype], self._inexact))
            steps = [Step(units, self._calendar, dtype) for units, _ in block]
            own = [convert(values, None, step, target)[0] for step, (_, values) in zip(steps, block, strict=True)]
            blocks.append(np.concatenate(own, axis))
        return np.concatenate(blocks, axis)

    def rounding(self, largest: float) -> float:
        """Return the most that rounding changes a value of at most ``largest``."""
        return 4 * EPSILON * (largest + 2 * self._offset)
