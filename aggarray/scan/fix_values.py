"""Values that attributes of CF can have, as far as a value shows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aggarray.cf.units import ALIASES, CALENDARS, calendar_name, is_reference_time
from aggarray.errors import UnitsError
from aggarray.scan.renaming import DIMENSIONS, REFERENCES, TERMS

#: Units without a need for UDUNITS, whose import takes a tenth of a second.
_PLAIN = re.compile(
    r"(?:(?:[munkhcM]?(?:m|g|s|K|Pa|W|J|N|mol|Hz)|1|%|deg[CF]|degrees?(?:_(?:north|east))?|days?|hours?)-?\d?[ .]?)+"
)
#: Vertical coordinates without units (CF section 3.1).
_LEVELS = ("level", "layer", "sigma_level")


def value_fault(name: str, value: Any) -> str | None:
    """Return what to give instead of an invalid value, None if it is valid.

    ``value``: a text, a number, or a tuple of these.

    >>> value_fault("scale_factor", 0), value_fault("positive", "down"), value_fault("comment", 5)
    ('give one finite number other than 0', None, None)
    """
    check = _CHECKS.get(name)
    return None if check is None else check(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number)


def _factor(value: Any) -> str | None:
    return None if _is_number(value) and math.isfinite(value) and value else "give one finite number other than 0"


def _offset(value: Any) -> str | None:
    return None if _is_number(value) and math.isfinite(value) else "give one finite number"


def _bound(value: Any) -> str | None:
    return None if _is_number(value) and value == value else "give one number"


def _range(value: Any) -> str | None:
    are_numbers = isinstance(value, tuple) and len(value) == 2 and all(map(_is_number, value))
    return None if are_numbers and value[0] <= value[1] else "give two numbers, the lower one first"


def _fill(value: Any) -> str | None:
    return "give one value; missing_value may have several" if isinstance(value, tuple) else None


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return "give a text"
    return "remove the null character" if "\0" in value else None


def _one_of(*texts: str) -> Callable[[Any], str | None]:
    return lambda value: None if isinstance(value, str) and value.lower() in texts else f"give {' or '.join(texts)}"


def _calendar(value: Any) -> str | None:
    if not isinstance(value, str):
        return "give a text"
    return None if value.strip() and calendar_name(value) in CALENDARS else f"give one of {', '.join((*CALENDARS, *ALIASES))}"


def _units(value: Any) -> str | None:
    if (fault := _text(value)) is not None:
        return fault
    if is_reference_time(value):
        from aggarray.cf.units.calendars import epoch

        try:  # a calendar with all days: that of the file is not known yet
            epoch(value, "360_day" if re.search(r"-0?2-30\b", value) else "all_leap")
        except UnitsError as error:
            return str(error)
        return None
    if not value.strip() or value in _LEVELS or _PLAIN.fullmatch(value):
        return None
    from aggarray.cf.units.udunits import signature

    return None if signature(value) is not None else "give units that UDUNITS knows, such as 'W m-2', or '1' for none"


_CHECKS: Mapping[str, Callable[[Any], str | None]] = {
    "scale_factor": _factor,
    "add_offset": _offset,
    "units": _units,
    "calendar": _calendar,
    "standard_name": _text,
    **dict.fromkeys((*REFERENCES, *TERMS, *DIMENSIONS, "cell_methods"), _text),
    "_FillValue": _fill,
    "valid_min": _bound,
    "valid_max": _bound,
    "valid_range": _range,
    "_Unsigned": _one_of("true", "false"),
    "positive": _one_of("up", "down"),
    "axis": _one_of("x", "y", "z", "t"),
}
