"""Units and calendars (CF 3.1, 4.4): which are times, and their names.

`udunits` converts plain units by cf_units; `calendars` converts reference times exactly, by integer arithmetic on day numbers.
`linear` represents a conversion, y = slope * x + offset; `compatibility` caches it. Blank units become None.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

#: Other names of calendars.
ALIASES = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
#: Calendars by their preferred names.
CALENDARS = ("standard", "proleptic_gregorian", "noleap", "all_leap", "360_day", "julian", "tai")
#: Calendars that are equal from 1582-10-15 on.
MIXABLE = ("standard", "proleptic_gregorian")


def stripped_text(units: Any) -> str | None:
    """Return units or a calendar as stripped text, None if blank or absent."""
    return None if units is None else str(units).strip() or None


@lru_cache(maxsize=4096)
def is_reference_time(units: str | None) -> bool:
    """Return whether units have "since" between blanks: a reference time.

    >>> is_reference_time("days since 2000-01-01"), is_reference_time("days")
    (True, False)
    """
    text = "" if units is None else str(units).lower()
    at = text.find("since")
    while at >= 0 and not (text[at - 1 : at].isspace() and text[at + 5 : at + 6].isspace()):
        at = text.find("since", at + 5)
    return at >= 0


def normal_calendar(units: str | None, calendar: str | None) -> str | None:
    """Return a reference time's calendar in lower case; None for other units.

    >>> normal_calendar("days since 2000-01-01", None), normal_calendar("K", "noleap")
    ('standard', None)
    """
    return (stripped_text(calendar) or "standard").lower() if is_reference_time(units) else None


def same_calendar(a: str | None, b: str | None) -> bool:
    """Return whether names are of one calendar (CF 4.4.1); None: standard.

    >>> same_calendar("Gregorian", None), same_calendar("noleap", "360_day")
    (True, False)
    """
    return calendar_name(a) == calendar_name(b)


def calendar_name(name: str | None) -> str:
    """Return the preferred CF name of a calendar; None gives "standard"."""
    plain = (stripped_text(name) or "standard").lower()
    return ALIASES.get(plain, plain)
