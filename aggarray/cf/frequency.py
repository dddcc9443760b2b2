"""Time steps stated by attributes: ``frequency``, ``table_id`` and others.

CMIP, CORDEX and obs4MIPs state the time step of a file by name (``mon``, ``6hrPt``, ``1hrCM``, ``fx``) and in the name of its
table (``Amon``, ``6hrPlev``); ACDD states it as a duration of ISO 8601 (``P1M``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aggarray.cf.attributes import text_attribute
from aggarray.dataclass import dataclass

_DAY = 86_400
#: Months, or else seconds, of the units of a frequency; neither for fields that do not change.
_UNITS: dict[str, tuple[int, float]] = {
    name: size
    for size, names in (
        ((0, 0), "fx fixed static invariant"),
        ((0, 60), "min minute"),
        ((0, 3600), "hr hour hourly h"),
        ((0, _DAY), "day daily d"),
        ((0, 5 * _DAY), "pentad"),
        ((0, 7 * _DAY), "week weekly"),
        ((1, 0), "mon month monthly"),
        ((3, 0), "sem seas season seasonal quarter quarterly"),
        ((12, 0), "yr year yearly annual"),
        ((120, 0), "dec decade decadal"),
    )
    for name in names.split()
}
_NAMES = "|".join(sorted(_UNITS, key=len, reverse=True))
_FREQUENCY = re.compile(rf"(\d{{0,3}})[\s_-]*({_NAMES})s?[\s_-]*(pt|cm|clim|c)?")
_TABLE = re.compile(r"[a-z]{0,3}?(\d{0,2})(fx|mon|day|hr|yr|dec|clim)(climmon)?(?:lev|plevpt|plev|pt|ant|gre|z)?")
_ISO = re.compile(r"p(?:(\d+)y)?(?:(\d+)m)?(?:(\d+)w)?(?:(\d+)d)?(?:t(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?)?")
_ISO_SIZES = ((12, 0), (1, 0), (0, 7 * _DAY), (0, _DAY), (0, 3600), (0, 60), (0, 1))
#: Methods of climatologies (CF 7.4). Monthly means of daily maxima have "over days", too, in CMIP.
_CLIMATOLOGY = re.compile(r"\b(?:within|over) years\b")


@dataclass(frozen=True, slots=True)
class Frequency:
    """A time step of ``months`` or ``seconds``; without both: fixed fields.

    ``climatology``: the steps are those of a typical year or day; ``stated``: by which attribute, as text.
    """

    months: int = 0
    seconds: float = 0.0
    climatology: bool = False
    stated: str = ""

    @property
    def fixed(self) -> bool:
        """Whether the fields do not change."""
        return not self.months and not self.seconds


def parse_frequency(text: str) -> Frequency | None:
    """Return the time step of a text, None if it states none.

    >>> parse_frequency("6hrPt"), parse_frequency("monC").climatology, parse_frequency("P1M") == parse_frequency("monthly")
    (Frequency(months=0, seconds=21600, climatology=False, stated=''), True, True)
    >>> parse_frequency("subhrPt"), parse_frequency("9.4 GHz")
    (None, None)
    """
    text = text.strip().casefold()
    if match := _FREQUENCY.fullmatch(text):
        return _times(match[1], _UNITS[match[2]], match[3] in ("cm", "clim", "c"))
    parts = _ISO.fullmatch(text)
    counts = [int(n or 0) for n in parts.groups()] if parts else []
    months, seconds = (sum(n * size[unit] for n, size in zip(counts, _ISO_SIZES, strict=False)) for unit in (0, 1))
    return Frequency(months, seconds) if bool(months) != bool(seconds) else None


def table_frequency(table: str) -> Frequency | None:
    """Return the time step of a table of CMIP, None if its name has none.

    >>> [table_frequency(t).seconds for t in ("AERhr", "6hrPlevPt", "CFday")], table_frequency("E1hrClimMon").climatology
    ([3600, 21600, 86400], True)
    >>> table_frequency("Oyr").months, table_frequency("IfxAnt").fixed, table_frequency("cfSites"), table_frequency("Esubhr")
    (12, True, None, None)
    """
    match = _TABLE.fullmatch(table.strip().casefold())
    if match is None:
        return None
    unit = "mon" if match[2] == "clim" else match[2]
    return _times(match[1], _UNITS[unit], match[2] == "clim" or match[3] is not None)


def _times(count: str, size: tuple[int, float], climatology: bool) -> Frequency | None:
    number = int(count or 1)
    return Frequency(size[0] * number, size[1] * number, climatology) if number else None


def stated_frequency(attributes: Mapping[str, Any], table: str | None) -> Frequency | None:
    """Return the time step that the attributes of a file state, or None.

    ``table``: the name of the table of CMIP.
    """
    texts = {name: text_attribute(attributes.get(name)) for name in ("frequency", "time_coverage_resolution")}
    for name, text, parse in (
        ("frequency", texts["frequency"], parse_frequency),
        ("table_id", table, table_frequency),
        ("time_coverage_resolution", texts["time_coverage_resolution"], parse_frequency),
    ):
        parsed = None if text is None else parse(text)
        if parsed is not None:
            return Frequency(parsed.months, parsed.seconds, parsed.climatology, f"{name} {text}")
    return None


def is_climatology(coordinate: Mapping[str, Any], cell_methods: Any, frequency: Frequency | None) -> bool:
    """Return whether times are those of a typical year or day (CF 7.4).

    ``coordinate``: attributes of the coordinate. A frequency alone, which may be out of date, counts for times without bounds.
    """
    if "climatology" in coordinate or _CLIMATOLOGY.search(text_attribute(cell_methods) or ""):
        return True
    return frequency is not None and frequency.climatology and "bounds" not in coordinate
