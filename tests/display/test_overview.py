"""The overview of datasets: positions on the shared axis, columns, groups, lines that open each array."""

import contextlib
import io
import os
import re
import shlex
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.cli import main
from aggarray.display import palette, report
from aggarray.display.facts import MATTERS
from aggarray.display.overview import HEIGHT, WIDTH, overview_of
from aggarray.display.report.lines import lines_of
from aggarray.display.timeline import decimal_years, ticks, timeline
from aggarray.opening.aggregation import Aggregation
from tests.display.test_page import HOSTILE
from tests.support.netcdf import cube, write


class Rows(HTMLParser):
    """The rows of a page: the texts of each, and the paths of its bar by what they show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []
        self.groups: list[str] = []
        self._field: str | None = None
        self._in: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = dict(attrs)
        kinds = (has.get("class") or "").split()
        if tag in ("details", "div") and set(kinds) & {"row", "group"}:
            self._in = kinds[0]
            if self._in == "row":
                self.rows.append({"cells": [], "bar": {}, "open": "open" in has, "keys": (has["data-sort"] or "").split()})
        elif tag == "section":
            self._in = None
        elif self._in == "row" and tag == "path":
            self.rows[-1]["bar"][kinds[0]] = has["d"]
        elif tag == "span" and self._in:
            self._field = kinds[0] if kinds else self._field

    def handle_data(self, data: str) -> None:
        text = data.strip()
        if text and self._in == "row" and self._field:
            if re.fullmatch(r"f\d+", self._field):
                self.rows[-1]["cells"].append(text)
            else:
                self.rows[-1][self._field] = text
        elif text and self._in == "group":
            self.groups.append(text)


def boxes(path: str) -> list[tuple[float, float]]:
    """Return the left and right sides of the boxes of a path, as parts of the width."""
    found = re.findall(r"M(\S+) \d+h(\S+?)V", path)
    return [(float(x) / WIDTH, (float(x) + float(width)) / WIDTH) for x, width in found]


def days(folder: Path, name: str, times: Any, **attributes: str) -> None:
    write(folder / name, cube(np.asarray(times, float)), attributes)


@pytest.fixture
def datasets(tmp_path: Path) -> Path:
    """Three models of two experiments, with a gap, an overlap, other units."""
    for experiment, first in (("historical", 0), ("ssp585", 400)):
        for model in ("M1", "M2", "M10"):
            for part in range(2):
                start = first + part * 100
                days(
                    tmp_path,
                    f"{experiment}_{model}_{part}.nc",
                    np.arange(start, start + 100),
                    source_id=model,
                    experiment_id=experiment,
                )
    (tmp_path / "ssp585_M2_1.nc").unlink()
    days(tmp_path, "ssp585_M2_2.nc", np.arange(600, 700), source_id="M2", experiment_id="ssp585")
    days(tmp_path, "historical_M10_2.nc", np.arange(150, 250), source_id="M10", experiment_id="historical")
    with netCDF4.Dataset(tmp_path / "historical_M1_1.nc", "a") as file:
        file["tas"].units = "degC"
    return tmp_path


def test_months_have_equal_lengths_in_every_calendar() -> None:
    cftime = pytest.importorskip("cftime", reason="cftime, of the extra netcdf, is not installed")
    for calendar in ("360_day", "noleap", "standard"):
        times = np.array([cftime.datetime(2001, month, 1, calendar=calendar) for month in range(1, 13)])
        assert decimal_years(times) == pytest.approx(2001 + np.arange(12) / 12)
    assert decimal_years(np.array(["0850-07-01", "2400-01-01"], "M8[D]")) == pytest.approx([850.5, 2400])
    half = decimal_years(np.array([cftime.datetime(2001, 2, 15, 12, calendar="noleap")]))
    assert half == pytest.approx(2001 + 1.5 / 12 + 0.5 / 28 / 12, abs=2e-3)


@pytest.mark.parametrize("limits", [(1850.0, 2015.0), (1.0, 12000.0), (2001.0, 2001.4), (2001.3, 2001.31), (-50.0, 60.0)])
def test_ticks_are_round_and_few(limits: tuple[float, float]) -> None:
    marks = ticks(limits)
    places = [x for x, _ in marks]
    assert 2 <= len(marks) <= 11 and places == sorted(set(places)) and len({text for _, text in marks}) == len(marks)
    assert limits[0] - 1e-6 <= places[0] and places[-1] <= limits[1] + 1e-6


def test_rows_share_one_axis(datasets: Path) -> None:
    agg = aa.open(datasets)
    overview = overview_of(agg.arrays, agg.refusals)
    page = Rows(report.page(agg))
    assert overview.names == ("source_id", "experiment_id", "file") and overview.limits is not None
    low, high = (2000 + np.array([0.0, 1 + 11 / 12])).tolist()
    assert overview.limits == pytest.approx((low, high), abs=0.01)
    found = {tuple(row["cells"]): row for row in page.rows}
    assert len(found) == 7 and [row["cells"][0] for row in page.rows] == ["M1", "M2", "M10", "M10", "M1", "M2", "M10"]
    ((left, right),) = boxes(found["M1", "historical"]["bar"]["data"])
    years = decimal_years(np.datetime64("2000-01-01") + np.array([0, 200]))
    assert (left, right) == pytest.approx((years - low) / (high - low), abs=0.005)
    assert found["M1", "ssp585"]["files"] == "2 files" and found["M1", "ssp585"]["when"] == "2001-02 to 2001-08"
    assert found["M1", "historical"]["bytes"] == "4.8 kB" and found["M1", "historical"]["when"] == "2000-01 to 2000-07"


def test_gaps_are_red_and_overlaps_amber(datasets: Path) -> None:
    agg = aa.open(datasets)
    text = report.page(agg)
    found = {tuple(row["cells"]): row for row in Rows(text).rows}
    gapped, plain = found["M2", "ssp585"]["bar"], found["M1", "historical"]["bar"]
    (gap,) = boxes(gapped["gap"])
    first, second = boxes(gapped["data"])
    assert gap == pytest.approx((first[1], second[0]), abs=0.002) and set(plain) == {"grid", "data"}
    overlapping = [row["bar"] for cells, row in found.items() if cells[:2] == ("M10", "historical")]
    assert len(overlapping) == 2 and overlapping[0]["overlap"] == overlapping[1]["overlap"]
    (shared,), both = boxes(overlapping[0]["overlap"]), sorted(boxes(bar["data"])[0] for bar in overlapping)
    assert shared == pytest.approx((both[1][0], both[0][1]), abs=0.002)
    assert "gap" not in overlapping[0]
    style = re.search("<style>(.*?)</style>", text, re.DOTALL)
    assert style and all(colour in style[1] for colour in (palette.DATA, palette.GAP, palette.OVERLAP))


def test_holes_take_half_of_the_bar() -> None:
    pieces = [([(i, i + 1), (j, j + 1)], SubArray.from_array(np.zeros((1, 1)))) for i, j in ((0, 0), (0, 1), (1, 0))]
    times = SubArray.from_array([0.0, 100.0], dimensions=("time",), units="days since 2000-01-01")
    array = MasterArray.from_subarrays(pieces, dimensions=("time", "x"), shape=(2, 2), name="v")
    from dataclasses import replace

    array = replace(array, coords={"time": MasterArray.from_subarrays([([(0, 2)], times)], dimensions=("time",), name="time")})
    (row,) = Rows(report.page(Aggregation((array,)))).rows
    assert row["bar"]["hole"].startswith("M500 ") and f" {HEIGHT // 2}h" in row["bar"]["hole"]


def test_problems_are_on_top_and_linked_to_their_rows(datasets: Path) -> None:
    (datasets / "broken.nc").write_bytes(b"\x89HDF\r\n\x1a\n nothing")
    agg = aa.open(datasets)
    for result in (None, agg.check()):
        text = report.page(agg, report=result)
        section = text.partition('<section id="problems">')[2].partition("</section>")[0]
        assert text.index('id="problems"') < text.index('id="overview"')
        assert [kind for kind in re.findall('class="kind">(.*?)<', section)] == ["unreadable", "gap", "overlap"]
        links = re.findall('href="#(.*?)">(.*?)</a>', section)
        assert [label for _, label in links] == [
            "M2 ssp585",
            "M10 historical historical_M10_0.nc",
            "M10 historical historical_M10_2.nc",
        ]
        assert all(f'id="{anchor}"' in text for anchor, _ in links)
        flagged = [row["cells"][:2] for row in Rows(text).rows if row.get("flag") == "1 problem"]
        assert flagged == [["M10", "historical"], ["M10", "historical"], ["M2", "ssp585"]]


@pytest.mark.heavy
def test_large_archives_are_grouped(shared_data: Path) -> None:
    agg = aa.open(shared_data / "cmip6")
    text = report.page(agg)
    page = Rows(text)
    assert len(page.rows) == len(agg) == 76 and 'data-group="1"' in text and text.count('<details class="group" open>') == 2
    assert page.groups[:3] == ["table_id", "Amon", "42 datasets"] and len(text) < 1_000_000
    assert sum(int(row["keys"][2]) for row in page.rows) == 326
    assert sum(int(row["keys"][3]) for row in page.rows) == sum(a.nbytes for a in agg)
    shown = agg._repr_html_()
    assert "<b>76 arrays</b>" in shown and "64 more" in shown and len(shown) < 60_000
    array = agg.arrays[0]._repr_html_()
    for words in ("1850-01-16", "plev 100000 to", "1 file", "gaps</th><td>none", "95.0 kB"):
        assert words in array


def test_more_rows_than_cards_make_a_small_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_CARDS", 2)
    piece = SubArray.from_array(np.zeros(2))
    arrays = tuple(MasterArray.from_subarrays([([(0, 2)], piece)], dimensions=("x",), name=f"v{n}") for n in range(12))
    text = report.page(Aggregation(arrays))
    assert text.count('<details class="row"') == 2 == text.count('<section class="array"') and text.count('class="row"') == 12


def execute(python: str) -> MasterArray:
    names: dict[str, Any] = {}
    exec(python, names)
    (array,) = (value for value in names.values() if isinstance(value, MasterArray))
    return array


def run(line: str, folder: Path) -> str:
    """Run a line of the shell in a folder; return the name of its output."""
    program, *words = shlex.split(line)
    assert program == "aggarray"
    before = os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as stop:
            main(words)
    finally:
        os.chdir(before)
    assert not stop.value.code
    return words[words.index("-o") + 1]


@pytest.mark.parametrize("saved", [False, True])
def test_lines_to_copy_open_their_array(datasets: Path, tmp_path_factory: pytest.TempPathFactory, saved: bool) -> None:
    for name in datasets.glob("historical_M10_*.nc"):
        name.unlink()
    folder = tmp_path_factory.mktemp("my outputs")
    source = datasets
    if saved:
        source = folder / "it's an index.nca"
        aa.open(datasets).save(source)
    agg = aa.open(source)
    lines = lines_of(agg, None if saved else [str(source)])
    codes = re.findall("<code[^>]*>(.*?)</code>", report.page(agg, source=None if saved else [str(source)]))
    assert sorted(map(unescape, codes)) == sorted(line for pair in lines for line in pair)
    for array, line in zip(agg, lines, strict=True):
        np.testing.assert_array_equal(execute(line.python)[:], array[:])
    with netCDF4.Dataset(folder / run(lines[0].shell, folder)) as file:
        np.testing.assert_array_equal(file["tas"][:], agg.arrays[0][:])


def test_lines_of_a_selection_and_of_rules_open_the_same_arrays(datasets: Path, tmp_path: Path) -> None:
    agg = aa.open(datasets).select("tas", experiment_id="historical", source_id="M1")
    (line,) = lines_of(agg, [str(datasets)])
    assert execute(line.python).shape == agg.arrays[0].shape and "source_id=M1" in line.shell
    for line in lines_of(aa.open(datasets).select(experiment_id="ssp585"), [str(datasets)]):
        assert execute(line.python).file_attrs["experiment_id"] == "ssp585" and "experiment_id=ssp585" in line.shell
    rules = aa.Rules(overlap="last")
    joined = aa.open(datasets, rules=rules).select(source_id="M10", experiment_id="historical")
    (line,) = lines_of(joined, [str(datasets)])
    assert "rules=aa.Rules(overlap='last')" in line.python and "--overlap last" in line.shell
    assert execute(line.python).shape == joined.arrays[0].shape == (250, 3, 2)
    with netCDF4.Dataset(tmp_path / run(line.shell, tmp_path)) as file:
        assert file["tas"].shape == (250, 3, 2)
    (line,) = lines_of(aa.open(datasets, rules=aa.Rules(coverage=0.9)).select(source_id="M1", experiment_id="ssp585"), ["x"])
    assert "rules=aa.Rules(coverage=0.9)" in line.python and line.shell == ""


def test_lines_of_arrays_that_overlap_name_their_files(datasets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agg = aa.open(datasets).select(source_id="M10", experiment_id="historical")
    assert len(agg) == 2
    with monkeypatch.context() as patch:  # no array is compared with every other one
        patch.setattr("aggarray.opening.provenance.Selection.fits", None)
        assert all(line.python for line in lines_of(agg, [str(datasets)]))
    for array, line in zip(agg, lines_of(agg, [str(datasets)]), strict=True):
        np.testing.assert_array_equal(execute(line.python)[:], array[:])
        with netCDF4.Dataset(tmp_path / run(line.shell, tmp_path)) as file:
            np.testing.assert_array_equal(file["tas"][:], array[:])
    assert len(list(tmp_path.glob("tas_*.nc"))) == 2
    agg.save(tmp_path / "index.nca")
    assert lines_of(aa.open(tmp_path / "index.nca"), None) == [("", ""), ("", "")]


def test_lines_of_the_real_archive(shared_data: Path) -> None:
    agg = aa.open(shared_data / "cmip6")
    lines = lines_of(agg, [str(shared_data / "cmip6")])
    assert all(line.python and line.shell for line in lines)
    chosen = agg.select("ta", source_id="MIROC6", table_id="Amon").arrays[0]
    number = next(n for n, array in enumerate(agg) if array is chosen)
    assert execute(lines[number].python).shape == chosen.shape


@pytest.mark.parametrize("evil", [*HOSTILE, "$(touch hacked)", "-o", "a;b", "class", "a'b", 'a"b', "*"])
def test_hostile_names_make_safe_lines(evil: str, tmp_path: Path) -> None:
    piece = SubArray.from_array(np.zeros(2))
    one = MasterArray.from_subarrays([([(0, 2)], piece)], dimensions=("x",), name=evil)
    from dataclasses import replace

    two = [replace(one, file_attrs={"source_id": value}) for value in (evil, "other")]
    for agg in (Aggregation((one,)), Aggregation(tuple(two))):
        for line in lines_of(agg, ["/data/x y.nca"]):
            assert line.python.isprintable() and line.shell.isprintable()
            compile(line.python, "line", "exec")
            words = shlex.split(line.shell)
            assert not words or (words[:3] == ["aggarray", "extract", "/data/x y.nca"] and words[4] == evil)
            assert not words or (re.fullmatch(r"[\w.+-]+\.nc", words[-1], re.ASCII) and not words[-1].startswith("-"))


def test_only_conversions_that_matter_are_marked() -> None:
    assert {"units", "calendar", "direction", "dtype"} <= MATTERS and not {
        "packing",
        "missing value",
        "size-1 dimension",
    } & MATTERS


def test_unknown_times_have_no_bar(sample_tiles: Path) -> None:
    assert timeline(aa.open(sample_tiles)["value"]) is None
    (row,) = Rows(report.page(aa.open(sample_tiles))).rows
    assert row["bar"] == {} and "when" not in row and row["open"]
