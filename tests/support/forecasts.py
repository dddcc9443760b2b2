"""Files of forecasts in the layouts that models and archives use, and the values that they must give.

Runs and leads are whole hours; runs count from `START`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.netcdf import Given, write

START = datetime(2024, 1, 1)
X = np.array([1.0, 2.0, 3.0])
UNITS = {"hours": 1.0, "days": 24.0, "minutes": 1 / 60}
_X = {"x": (("x",), X, {"units": "m"})}
_REFERENCE, _PERIOD, _TIME = ({"standard_name": name} for name in ("forecast_reference_time", "forecast_period", "time"))

#: Variables by file name, of one run and its leads in a unit, with dates since a base in hours.
Layout = Callable[[int, Sequence[int], str], Iterator[tuple[str, Given]]]


def values(run: Any, lead: Any) -> np.ndarray:
    """Return values that identify their run and lead, over (..., x)."""
    return np.asarray(np.asarray(run, float)[..., None] * 1000 + np.asarray(lead, float)[..., None] + X / 10)


def _since(unit: str, base: int = 0) -> str:
    return f"{unit} since {START + timedelta(hours=base):%Y-%m-%d %H:%M:%S}"


def _data(dimensions: tuple[str, ...], run: Any, lead: Any, coordinates: str = "") -> dict[str, Any]:
    attrs = {"units": "K", "standard_name": "air_temperature"} | ({"coordinates": coordinates} if coordinates else {})
    return {"tas": ((*dimensions, "x"), values(run, lead), attrs), **_X}


def valid_times(run: int, leads: Sequence[int], unit: str) -> Iterator[tuple[str, Given]]:
    """A file per run: time(time) and a scalar reference time of any name."""
    time = (run + np.array(leads, float)) / UNITS[unit]
    yield (
        f"a{run:05}",
        {
            "time": (("time",), time, {**_TIME, "units": _since(unit)}),
            "init": ((), np.float64(run - 48), {**_REFERENCE, "units": _since("hours", 48)}),
            **_data(("time",), np.full(len(leads), run), leads, "init"),
        },
    )


def unnamed_reference(run: int, leads: Sequence[int], unit: str) -> Iterator[tuple[str, Given]]:
    """A reference time of size 1 that no variable names, as in the files of the National Water Model."""
    ((_, variables),) = valid_times(run, leads, unit)
    reference = (("reference_time",), np.array([run], np.int32), {**_REFERENCE, "units": _since("hours")})
    data = _data(("time",), np.full(len(leads), run), leads)
    yield f"n{run:05}", {"time": variables["time"], "reference_time": reference, **data}


def single_fields(run: int, leads: Sequence[int], unit: str) -> Iterator[tuple[str, Given]]:
    """A file per run and lead: scalar time and reference time."""
    for lead in leads:
        yield (
            f"b{run:05}_{lead:03}",
            {
                "time": ((), np.float64((run + lead) / UNITS[unit]), {**_TIME, "units": _since(unit)}),
                "reftime": ((), np.float64(0), {**_REFERENCE, "units": _since("minutes", run)}),
                **_data((), run, lead, "time reftime"),
            },
        )


def single_leads(run: int, leads: Sequence[int], unit: str) -> Iterator[tuple[str, Given]]:
    """A file per run and lead: time of size 1, scalar lead, no reference time."""
    for lead in leads:
        yield (
            f"l{run:05}_{lead:03}",
            {
                "time": (("time",), np.array([run + lead]), {**_TIME, "units": _since("hours")}),
                "forecast_period": ((), np.float64(lead / UNITS[unit]), {**_PERIOD, "units": unit}),
                **_data(("time",), [run], [lead], "forecast_period"),
            },
        )


def steps(run: int, leads: Sequence[int], unit: str) -> Iterator[tuple[str, Given]]:
    """As cfgrib writes: the reference time is `time`, with steps and valid times."""
    yield (
        f"c{run:05}",
        {
            "time": ((), np.int64(run * 3600), {**_TIME, "units": _since("seconds"), "long_name": "initial time of forecast"}),
            "step": (("step",), np.array(leads, float) / UNITS[unit], {**_PERIOD, "units": unit}),
            "valid_time": (("step",), (run + np.array(leads)) * 3600, {**_TIME, "units": _since("seconds")}),
            **_data(("step",), np.full(len(leads), run), leads, "time valid_time"),
        },
    )


def leads_only(run: int, leads: Sequence[int], unit: str) -> Iterator[tuple[str, Given]]:
    """A dimension of leads, decreasing, and a reference time of size 1, no valid time."""
    down = np.array(leads[::-1])
    yield (
        f"p{run:05}",
        {
            "run": (("run",), np.array([run / 24]), {**_REFERENCE, "units": _since("days")}),
            "lead": (("lead",), down / UNITS[unit], {"units": unit}),
            **_data(("lead", "run"), np.full((len(leads), 1), run), down[:, None]),
        },
    )


def date_of_units(run: int, leads: Sequence[int], unit: str) -> Iterator[tuple[str, Given]]:
    """No reference time except the date of the units."""
    time = (("time",), np.array(leads, float) / UNITS[unit], {**_TIME, "units": _since(unit, run)})
    yield f"u{run:05}", {"time": time, **_data(("time",), np.full(len(leads), run), leads)}


LAYOUTS: tuple[Layout, ...] = (
    *(valid_times, unnamed_reference, single_fields, single_leads, steps, leads_only, date_of_units),
)


def flat(runs: Mapping[int, Sequence[int]]) -> Given:
    """Return variables of one file of several runs: one dimension of fields."""
    pairs = np.array([(run, lead) for run, leads in runs.items() for lead in leads])
    return {
        "time": (("field",), pairs.sum(axis=1), {**_TIME, "units": _since("hours")}),
        "forecast_reference_time": (("field",), pairs[:, 0], {**_REFERENCE, "units": _since("hours")}),
        **_data(("field",), pairs[:, 0], pairs[:, 1], "time forecast_reference_time"),
    }


def two_dimensional(runs: Sequence[int], leads: Sequence[int], unit: str = "hours") -> Given:
    """Return variables of one file of several runs, as cfgrib writes: (time, step)."""
    run, lead = np.array(runs)[:, None], np.array(leads)[None, :]
    return {
        "time": (("time",), np.array(runs), {**_TIME, "units": _since("hours")}),
        "step": (("step",), np.array(leads) / UNITS[unit], {**_PERIOD, "units": unit}),
        "valid_time": (("time", "step"), run + lead, {**_TIME, "units": _since("hours")}),
        **_data(("time", "step"), run + 0 * lead, lead + 0 * run, "valid_time"),
    }


def write_all(folder: Path, runs: Mapping[int, tuple[Sequence[int], Layout, str]]) -> dict[int, list[str]]:
    """Write the files of runs, each with its leads, layout and unit; return their paths by run."""
    return {
        run: [write(folder / f"{name}.nc", variables) for name, variables in layout(run, leads, unit)]
        for run, (leads, layout, unit) in runs.items()
    }


def cube_of(runs: Mapping[int, Sequence[int]]) -> tuple[list[int], list[int], np.ndarray]:
    """Return runs, leads, and values over (run, lead, x), NaN where a run lacks a lead."""
    axis, leads = sorted(runs), sorted({lead for own in runs.values() for lead in own})
    cube = np.full((len(axis), len(leads), len(X)), np.nan)
    for row, run in enumerate(axis):
        for column, lead in enumerate(leads):
            if lead in runs[run]:
                cube[row, column] = values(run, lead)
    return axis, leads, cube


def best_of(runs: Mapping[int, Sequence[int]]) -> tuple[list[int], np.ndarray]:
    """Return valid times, and the values of the latest run at each."""
    latest: dict[int, int] = {}
    for run, leads in runs.items():
        for lead in leads:
            latest[run + lead] = max(run, latest.get(run + lead, run))
    times = sorted(latest)
    return times, np.array([values(latest[time], time - latest[time]) for time in times]).reshape(len(times), len(X))


def hours(dates: np.ndarray) -> list[int]:
    """Return dates as hours since `START`."""
    return [int(n) for n in (dates - np.datetime64(START)) / np.timedelta64(1, "h")]
