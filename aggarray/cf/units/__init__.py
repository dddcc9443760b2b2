"""Comparison and conversion of units and calendars (CF 3.1, 4.4).

UDUNITS handles plain units, through cf_units. Reference times are exact integer arithmetic on day numbers from cftime. A
conversion is y = slope * x + offset, and is cached. Blank units are None.
"""

from aggarray.cf.units.calendars import (
    Epoch,
    datetime_kind,
    datetimes,
    decodable,
    epoch,
    from_datetime,
    is_reference_time,
    normal_calendar,
    same_calendar,
)
from aggarray.cf.units.compatibility import (
    canonical_units,
    comparable_units,
    conversion,
    conversion_between,
    equivalent,
    incompatibility,
    same,
)
from aggarray.cf.units.linear import Conversion
from aggarray.cf.units.temperature import KINDS, temperature_difference, temperature_of

__all__ = [
    "KINDS",
    "Conversion",
    "Epoch",
    "canonical_units",
    "comparable_units",
    "conversion",
    "conversion_between",
    "datetime_kind",
    "datetimes",
    "decodable",
    "epoch",
    "equivalent",
    "from_datetime",
    "incompatibility",
    "is_reference_time",
    "normal_calendar",
    "same",
    "same_calendar",
    "temperature_difference",
    "temperature_of",
]
