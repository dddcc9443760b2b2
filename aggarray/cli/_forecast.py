"""Option --forecast: views of forecasts along the valid time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from aggarray.cf.attributes import LEAD, REFERENCE
from aggarray.errors import NotFoundError

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

_FORMS = "give best, period=LEAD such as period=24 or 'period=6 hours', or run=TIME such as run=2024-01-01T12"


def parse_view(text: str | None) -> dict[str, str] | None:
    """Return the arguments of `MasterArray.forecast`; BadParameter if invalid.

    >>> parse_view("best"), parse_view("period=24"), parse_view(None)
    ({'view': 'best'}, {'period': '24'}, None)
    """
    if text is None or text.strip() == "best":
        return None if text is None else {"view": "best"}
    name, _, value = (part.strip() for part in text.partition("="))
    if name not in ("period", "run") or not value:
        raise click.BadParameter(f"{text!r} is no view; {_FORMS}", param_hint="--forecast")
    return {name: value}


def views_of(arrays: Sequence[MasterArray], view: dict[str, str] | None) -> list[MasterArray]:
    """Return views of the forecasts among arrays; the others do not change.

    Raises NotFoundError if none is a forecast, or has the run or the lead.
    """
    if view is None:
        return list(arrays)
    dimensions = {REFERENCE, LEAD}
    if not any(dimensions <= set(array.dimensions) for array in arrays):
        hint = "give data files of forecasts, or an index of them that aggarray aggregate --preset forecast made"
        found = sorted({d for array in arrays for d in array.dimensions})
        raise NotFoundError(f"no array over {' and '.join(sorted(dimensions))}, only over {', '.join(found)}", hint=hint)
    return [array.forecast(**view) if dimensions <= set(array.dimensions) else array for array in arrays]
