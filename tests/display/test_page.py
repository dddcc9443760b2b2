"""Content of the HTML page of an aggregation, safe for any name in a file."""

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.aggregate.rules import Refusal, Skipped
from aggarray.cli import main
from aggarray.display import facts, report
from aggarray.display.matrix import colours_of
from aggarray.errors import AggarrayError
from aggarray.opening.aggregation import Aggregation
from tests.support.netcdf import cube, write

HOSTILE = [
    "</script><script>alert(1)</script>",
    "\"' onload=x <b>&amp;",
    "a\nb\x1b[31m\u202e\u2028\x00",
    "<!--",
    "]]>",
    "\udcff",
]


class Tags(HTMLParser):
    """Collects what a browser would make of a page: elements with their attributes, and the text of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def drawn(text: str) -> dict[str, Any]:
    """The data of a page, as its script reads them."""
    result = re.search('id="data">([^<]*)<', text)
    assert result
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(result[1])))
    return data


def made(pieces: list[Any], shape: tuple[int, ...] | None = None, **how: Any) -> MasterArray:
    dimensions = how.pop("dimensions", ("y", "x")[-len(pieces[0][0]) :])
    return MasterArray.from_subarrays(pieces, dimensions=dimensions, shape=shape, **how)


def test_an_archive_is_told_and_drawn(sample_archive: Path) -> None:
    agg = aa.open(sample_archive)
    text = report.page(agg, title="A year")
    data = drawn(text)
    tas = data["arrays"][0]
    times = '<span class="nb">2001-01-01T12:00:00</span> to <span class="nb">2001-12-31T12:00:00</span>'
    assert "<h1>A year</h1>" in text and times in text
    assert data["folder"] == str(sample_archive) and sorted(data["files"]) == sorted(p.name for p in sample_archive.iterdir())
    assert [data["files"][n] for n in tas["files"]] == [Path(p.data.uri).name for p in agg["tas"].partitions if p.data]
    assert (
        tas["axes"][0]["cuts"] == agg["tas"].partitions.edges[0].tolist()
        and tas["axes"][0]["labels"][0][2][:10] == "2001-03-01"
    )
    assert tas["marks"] == [0] * 12 and tas["order"] == [0] and tas["axes"][0]["gaps"] == []
    differences = facts.conformed(agg["tas"])
    march = {differences[n].found for n in tas["conforms"][tas["templates"][2]]}
    assert "degC" in march
    assert report.page(agg, title="A year") == text


def test_tiles_are_parts_of_files(sample_tiles: Path) -> None:
    agg = aa.open(sample_tiles)
    value = drawn(report.page(agg))["arrays"][0]
    partitions = list(agg["value"].partitions)
    assert [bool(m & 1) for m in value["marks"]] == [p.virtual for p in partitions]
    for cell, p in enumerate(partitions):
        words = [
            f"{d} {s.start}:{s.stop} of {n}"
            for d, s, n in zip(p.pdimensions, p.part, p.data.shape, strict=True)  # type: ignore[union-attr]
            if len(range(*s.indices(n))) != n  # type: ignore[union-attr]
        ]
        assert value["parts"].get(str(cell), "") == ", ".join(words)
    assert value["order"] == [1, 0]


def test_holes_gaps_refusals_and_problems_are_there(tmp_path: Path) -> None:
    for number, days in enumerate(([0.0, 1, 2], [5.0, 6, 7])):
        write(tmp_path / f"{number}.nc", cube(np.array(days)))
    write(tmp_path / "copy.nc", cube(np.array([5.0, 6, 7])))
    (tmp_path / "broken.nc").write_bytes(b"\x89HDF\r\n\x1a\n nothing")
    agg = aa.open(tmp_path)
    text = report.page(agg)
    array = drawn(text)["arrays"][0]
    assert (
        array["axes"][0]["gaps"] == [[3.0, 5.0, "2 steps missing between 2000-01-03 and 2000-01-06"]]
        or array["axes"][0]["gaps"]
    )
    assert array["axes"][0]["places"][0][1] - array["axes"][0]["places"][1][0] == 2
    assert 'id="problems"' in text and "copy.nc repeats" in text and 'id="skipped"' in text and 'id="refusals"' not in text
    holes = made([([(0, 1), (0, 1)], SubArray.from_array([[1.0]])), ([(1, 2), (1, 2)], SubArray.from_array([[1.0]]))], name="v")
    text = report.page(Aggregation((holes,), (Refusal(("a", "b"), (), "units", "units differ"),)))
    assert drawn(text)["arrays"][0]["files"] == [-1, -2, -2, -1] and drawn(text)["arrays"][0]["marks"] == [0, 2, 2, 0]
    assert "no file covers" in text and "units differ" in text


@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 60), st.randoms())
def test_neighbours_have_different_colours(rows: int, columns: int, most: int, random: Any) -> None:
    plane = np.array([[random.randint(-2, most) for _ in range(columns)] for _ in range(rows)])
    colours = colours_of(plane)
    for file in np.unique(plane[plane >= 0]):
        assert len(np.unique(colours[plane == file])) == 1
    if len(np.unique(plane)) <= 6:
        assert len(np.unique(colours[plane >= 0])) == len(np.unique(plane[plane >= 0]))
    tiles = colours_of(np.arange(rows * columns).reshape(rows, columns))
    assert (tiles[1:] != tiles[:-1]).all() and (tiles[:, 1:] != tiles[:, :-1]).all()


def test_times_beside_a_counter_are_the_axis(tmp_path: Path) -> None:
    for number in range(2):
        counted = cube([30.0 * number + 15])
        counted = {name: (tuple("step" if d == "time" else d for d in dims), *rest) for name, (dims, *rest) in counted.items()}
        counted["step"] = (("step",), np.array([0.0]), {"long_name": "counter"})
        counted["tas"][-1]["coordinates"] = "time"
        write(tmp_path / f"{number}.nc", counted)
    axis = drawn(report.page(aa.open(tmp_path)))["arrays"][0]["axes"][0]
    assert (axis["name"], axis["time"], axis["labels"][0]) == ("step", True, ["2000-01-16", "2000-02-15"])


def test_what_a_check_found_may_be_shown_instead(sample_tiles: Path) -> None:
    result = aa.Report(False, (aa.Problem("changed", "x.nc", "x.nc: another size"),))
    assert "x.nc: another size" in report.page(aa.open(sample_tiles), report=result)


@pytest.mark.parametrize("evil", HOSTILE)
def test_names_do_no_harm(evil: str) -> None:
    piece = SubArray.from_array(np.zeros(2), dimensions=(evil,), units="1")
    array = made([([(0, 2)], piece)], dimensions=(evil,), name=evil)
    array = MasterArray(evil, array.dtype, "1", None, np.nan, array._matrix, {evil: evil}, {evil: evil}, {evil: array})
    agg = Aggregation((array, array), (Refusal((evil, evil), (evil,), evil, evil),), (Skipped(evil, evil, evil),))
    for text in (report.page(agg, title=evil), agg._repr_html_(), array._repr_html_()):
        tags = Tags(text)
        assert all(not name.startswith("on") for _, attributes in tags.tags for name in attributes)
        assert [a for name, a in tags.tags if name == "script"] in (
            [],
            [{"type": "application/octet-stream", "id": "data"}, {}],
        )
        assert not {"b"} & {name for name, _ in tags.tags} or "<b>&amp;" not in text
        assert not [c for c in text if not c.isprintable() and c != "\n"]
        text.encode()
    names = drawn(report.page(agg))["arrays"][0]["name"]
    assert names.isprintable()


@given(st.text(min_size=1, max_size=30))
def test_any_name_is_shown_as_it_is(name: str) -> None:
    array = made([([(0, 2)], SubArray.from_array(np.zeros(2)))], name=name)
    words = Tags(report.page(Aggregation((array,)))).words
    assert facts.printable(name) in words


def test_the_page_asks_for_nothing(sample_archive: Path) -> None:
    text = report.page(aa.open(sample_archive))
    tags = Tags(text).tags
    assert not [a for _, a in tags if {"src", "srcset", "style", "action", "background"} & set(a)]
    assert [a["href"] for name, a in tags if "href" in a] == []
    policy = next(a["content"] for _, a in tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy and policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (2, 2, 2, 2)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    piece = SubArray.from_array(np.zeros(shape))
    array = MasterArray.from_subarrays([([(0, n) for n in shape], piece)], dimensions=[f"d{i}" for i in range(len(shape))])
    assert len(drawn(report.page(Aggregation((array,))))["arrays"]) == 1
    assert "<svg" in array._repr_html_()
    assert report.page(Aggregation(()))


def many(count: int) -> MasterArray:
    """An array of so many partitions, each a part of a file of its own, that do not exist."""
    from dataclasses import replace

    one = SubArray.from_array(np.zeros(1), dimensions=("time",))
    array = made([([(0, 1)], one), ([(1, 2)], one)], dimensions=("time",), name="v")
    matrix = array._matrix
    rows = np.arange(count, dtype=np.int32)
    uris = tuple(f"/archive/v_{day:06}_{day * 7919 % 100_003:06}.nc" for day in rows.tolist())
    references = replace(
        matrix.references, uris=uris, variables=("v",), memory=(), uri=rows, variable=rows * 0, template=rows * 0
    )
    whole = replace(matrix, references=references, refs=rows, edges=(np.arange(count + 1),), parts=type(matrix.parts)())
    days = SubArray.from_array(np.arange(count) + 0.5, dimensions=("time",), units="days since 1800-01-01")
    time = made([([(0, count)], days)], dimensions=("time",), name="time", units="days since 1800-01-01", calendar="standard")
    return replace(array, _matrix=whole, coords={"time": time})


@pytest.mark.heavy
def test_a_hundred_thousand_partitions_make_a_small_page() -> None:
    text = report.page(Aggregation((many(100_000),)))
    assert len(text) < 3_000_000 and len(drawn(text)["arrays"][0]["files"]) == 100_000
    assert len(many(100_000)._repr_html_()) < 40_000


@pytest.mark.heavy
def test_more_partitions_share_cells() -> None:
    text = report.page(Aggregation((many(300_001),)))
    array = drawn(text)["arrays"][0]
    assert len(text) < 3_000_000 and len(array["files"]) == 75_001
    assert array["axes"][0]["partitions"] == 300_001 and array["axes"][0]["cuts"][-1] == 300_001


def test_more_arrays_than_a_page_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_ARRAYS", 2)
    arrays = tuple(made([([(0, 2)], SubArray.from_array(np.zeros(2)))], name=f"v{n}") for n in range(5))
    assert "and 3 more arrays" in report.page(Aggregation(arrays)) and "<b>5</b>" in report.page(Aggregation(arrays))


def test_pages_are_replaced_whole_and_other_files_never(tmp_path: Path) -> None:
    page = report.page(Aggregation(()))
    assert report.write(page, tmp_path / "p.html") and not report.write(page, tmp_path / "p.html")
    assert report.write(report.page(Aggregation(()), title="x"), tmp_path / "p.html")
    (tmp_path / "data.nc").write_bytes(b"CDF")
    for name, reason in (("data.nc", "not a page"), ("absent/p.html", "cannot be written"), (".", "cannot be read")):
        with pytest.raises(AggarrayError, match=reason):
            report.write(page, tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data.nc", "p.html"]
    assert (tmp_path / "data.nc").read_bytes() == b"CDF"


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, sample_tiles: Path) -> None:
    for options, said in (([], "p.html: 1 array of 10 files"), (["--json", "--check"], '"changed": false')):
        with pytest.raises(SystemExit) as stop:
            main(["view", str(sample_tiles), "-o", str(tmp_path / "p.html"), *options])
        assert not stop.value.code and said in capsys.readouterr().out
    assert (tmp_path / "p.html").read_text() == report.page(aa.open(sample_tiles), source=[str(sample_tiles)])
    with pytest.raises(SystemExit) as stop:
        main(["view", str(sample_tiles), "-o", str(tmp_path / "absent" / "p.html")])
    assert stop.value.code == 1 and "cannot be written" in capsys.readouterr().err


def test_notebooks_show_arrays_and_aggregations(sample_archive: Path, sample_tiles: Path) -> None:
    agg = aa.open([sample_archive, sample_tiles])
    text = agg._repr_html_()
    assert "<b>2 arrays</b>" in text and text.count("<svg") == 3 and "2001-01 to 2001-12" in text and "12 files" in text
    text = agg["value"]._repr_html_()
    assert "4 y x 6 x, 10 files, 22 virtual" in text and "src=" not in text and "<script" not in text
    assert len(re.findall('fill="#[0-9a-f]{6}"', text)) >= 5
