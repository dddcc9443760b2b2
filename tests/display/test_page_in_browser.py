"""The HTML page in a browser: drawing, tips, search, contrast, requests."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.aggregate.rules import Refusal
from aggarray.display import palette, report
from aggarray.opening.aggregation import Aggregation
from tests.display.test_page import HOSTILE, many
from tests.support.browser import Browser, browser
from tests.support.netcdf import cube, write

#: Of all visible text, the least contrast with what is behind it, by the formula of WCAG 2.
CONTRAST = """(() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  document.querySelectorAll("details").forEach((d) => (d.open = true));
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let least = [99, ""], count = 0;
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), e = walker.currentNode.parentElement;
    if (!text || !e.checkVisibility() || e.closest("script, style, noscript")) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    count++;
    if (ratio < least[0]) least = [ratio, text];
  }
  return [...least, count];
})()"""

#: How many pixels of the picture of the first array have any of these colours.
INK = """((colours) => {
  const c = document.querySelector("[data-array='0'] figure canvas");
  const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, found = {};
  for (let i = 0; i < d.length; i += 4) {
    const key = "#" + [d[i], d[i + 1], d[i + 2]].map((v) => v.toString(16).padStart(2, "0")).join("");
    if (d[i + 3] === 255 && colours.includes(key)) found[key] = (found[key] || 0) + 1;
  }
  return found;
})"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as result:
        yield result


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything on it: a gap, other units, holes, a copy, a broken file, refusals, three dimensions."""
    folder = tmp_path_factory.mktemp("messy")
    for number, days in enumerate(([0.0, 1, 2], [3.0, 4, 5], [8.0, 9, 10])):
        write(folder / f"days_{number}.nc", cube(np.array(days)), {"source_id": "M1"})
    write(folder / "days_copy.nc", cube(np.array([8.0, 9, 10])), {"source_id": "M1"})
    with netCDF4.Dataset(folder / "days_1.nc", "a") as file:
        file["tas"].units = "degC"
    write(folder / "other.nc", cube(np.array([11.0])), {"source_id": "M2"})
    (folder / "broken.nc").write_bytes(b"\x89HDF\r\n\x1a\n nothing")
    agg = aa.open(folder)
    places = [(i, j, k) for i in range(2) for j in range(3) for k in range(4) if (i, j, k) != (1, 1, 2)]
    pieces = [([(i, i + 1), (j, j + 1), (k, k + 1)], SubArray.from_array(np.zeros((1, 1, 1)))) for i, j, k in places]
    box = MasterArray.from_subarrays(pieces, dimensions=("member", "y", "x"), name="box")
    evil = tuple(
        MasterArray.from_subarrays([([(0, 2)], SubArray.from_array(np.zeros(2)))], dimensions=("x",), name=name)
        for name in HOSTILE
    )
    refusals = (*agg.refusals, Refusal(("tas", HOSTILE[0]), (), "units", HOSTILE[1]))
    whole = Aggregation((*agg.arrays, box, *evil), refusals, agg.skipped, agg.duplicates, agg._provenance)
    path = folder / "page.html"
    report.write(report.page(whole, title="Messy & <small>"), path)
    return path


def show_open(chromium: Browser, path: Path, **how: Any) -> None:
    """Show a page and open all rows."""
    chromium.show(path, **{"height": 6000, **how})
    chromium.run("document.querySelectorAll('.row').forEach((row) => (row.open = true))")
    chromium.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")


def text_of(chromium: Browser, selector: str) -> str:
    return str(chromium.run(f"document.querySelector({selector!r}).innerText"))


def hover(chromium: Browser, u: float, v: float, number: int = 0) -> str:
    """Move the pointer to a place of a picture, given as parts of its size; return what the tip says, or ""."""
    box = chromium.run(
        f"(() => {{ const c = document.querySelector('[data-array=\"{number}\"] figure canvas[tabindex]');"
        "c.scrollIntoView({block: 'center'}); const b = c.getBoundingClientRect();"
        "return [b.left, b.top, b.width, b.height]; })()"
    )
    chromium.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + u * box[2], y=box[1] + v * box[3])
    return str(chromium.run("(() => { const t = document.getElementById('tip'); return t.hidden ? '' : t.innerText; })()"))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1000])
def test_it_is_readable(chromium: Browser, messy: Path, width: int, dark: bool) -> None:
    show_open(chromium, messy, width=width, dark=dark)
    ratio, text, count = chromium.run(CONTRAST)
    assert count > 100 and ratio >= 4.5, text
    assert chromium.run("document.documentElement.scrollWidth") <= width
    assert chromium.run("[...document.querySelectorAll('figure')].every((f) => f.hidden || f.scrollWidth <= f.clientWidth)")
    assert chromium.complaints() == []
    background = chromium.run("getComputedStyle(document.documentElement).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark


def test_nothing_is_asked_for_and_nothing_runs(chromium: Browser, messy: Path) -> None:
    show_open(chromium, messy)
    assert chromium.requests() == [messy.as_uri()]
    assert text_of(chromium, "h1") == "Messy & <small>"
    headings = chromium.run("[...document.querySelectorAll('section.array h2')].map((h) => h.firstChild.textContent)")
    assert HOSTILE[0] in headings and HOSTILE[1] in headings
    assert chromium.run("document.scripts.length") == 2 and chromium.complaints() == []


def test_a_script_that_got_in_would_not_run(chromium: Browser, messy: Path, tmp_path: Path) -> None:
    changed = messy.read_text().replace("<main>", "<main><script>window.got = 1</script><img src=x onerror='window.got = 2'>")
    (tmp_path / "changed.html").write_text(changed)
    chromium.show(tmp_path / "changed.html")
    assert chromium.run("window.got === undefined") and chromium.complaints() != []


def test_files_have_colours_and_gaps_stay_free(chromium: Browser, messy: Path) -> None:
    show_open(chromium, messy)
    ink = chromium.run(f"{INK}(['#4e79a7', '#f28e2b', '#59a14f', '{palette.GAP}'])")
    first, second, third, gap = ink["#4e79a7"], ink["#f28e2b"], ink["#59a14f"], ink[palette.GAP]
    assert abs(first - third) < first * 0.05 and abs(first - second) < first * 0.15 and gap > 100
    legend = text_of(chromium, "[data-array='0'] .legend")
    assert all(words in legend for words in ("a colour per file", "conformed on reading", "gap: missing steps"))
    show_open(chromium, messy, dark=True)
    assert "#ff6b63" in chromium.run(f"{INK}(['#ff6b63', '{palette.GAP}'])")


def test_tips_tell_what_a_cell_is(chromium: Browser, messy: Path) -> None:
    show_open(chromium, messy)
    lines = hover(chromium, 0.05, 0.3).splitlines()
    assert lines[0] == "days_0.nc" and lines[1].startswith("time 0:3 (2000-01-01") and len(lines) == 2
    assert "units: degC → K" in hover(chromium, 0.4, 0.3)
    assert hover(chromium, 0.62, 0.3).splitlines()[0] == "Gap"
    assert "2 steps missing" in hover(chromium, 0.62, 0.3)
    assert hover(chromium, 0.9, 0.3).startswith("days_2.nc")
    assert hover(chromium, 0.5, 0.97) == ""


def test_the_keyboard_goes_where_the_pointer_goes(chromium: Browser, messy: Path) -> None:
    show_open(chromium, messy)
    chromium.run("document.querySelector('[data-array=\"0\"] figure canvas[tabindex]').focus()")
    told = []
    for key in ("ArrowRight", "ArrowRight", "Home", "End", "Escape"):
        chromium.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        told.append(chromium.run("(() => { const t = document.getElementById('tip'); return t.hidden ? '' : t.innerText; })()"))
    assert [t.splitlines()[0] if t else "" for t in told] == ["days_0.nc", "days_1.nc", "days_0.nc", "days_2.nc", ""]


def test_other_dimensions_are_chosen(chromium: Browser, messy: Path) -> None:
    show_open(chromium, messy)
    cards = "[...document.querySelectorAll('section.array')]"
    number = chromium.run(f"+{cards}.find((s) => s.innerText.startsWith('box')).dataset.array")
    said = [hover(chromium, 0.65, 0.4, number)]
    chromium.run(
        "(() => { const s = document.querySelector('.planes select'); s.value = 0; s.dispatchEvent(new Event('change')); })()"
    )
    hover(chromium, 0.1, 0.1, 0)
    said.append(hover(chromium, 0.65, 0.4, number))
    assert said[0].startswith("Missing") and said[1].startswith("In memory"), said
    assert "member 0:1" in said[1] and "y 1:2" in said[1] and "x 2:3" in said[1]


@pytest.mark.parametrize(
    ("query", "shown", "rows"),
    [
        ("", None, None),
        ("source_id m2", 1, None),
        ("DAYS_2", 1, None),
        ("box", 1, None),
        ("nowhere at all", 0, 0),
        ("broken.nc", 0, None),
    ],
)
def test_search_keeps_what_matches(chromium: Browser, messy: Path, query: str, shown: Any, rows: Any) -> None:
    show_open(chromium, messy)
    chromium.run("document.getElementById('query').focus()")
    chromium.call("Input.insertText", text=query)
    left = chromium.run("[...document.querySelectorAll('section.array')].filter((s) => s.checkVisibility()).length")
    result = chromium.run(
        "[...document.querySelectorAll('#problems li, main > section:not(#overview) tbody tr')]"
        ".filter((r) => !r.hidden && !r.closest('[hidden]')).length"
    )
    assert left == (chromium.run("document.querySelectorAll('section.array').length") if shown is None else shown)
    assert result == rows if rows is not None else result > 0
    assert chromium.run("document.getElementById('none').hidden") is bool(left or result)
    if query:
        assert text_of(chromium, "#count").startswith(f"{left} of ")
    if query == "DAYS_2":  # the other files' cells are pale
        ink = chromium.run(f"{INK}(['#4e79a7', '#f28e2b', '#59a14f'])")
        assert set(ink) == {"#59a14f"}


def test_what_is_conformed_is_shown_where(chromium: Browser, messy: Path) -> None:
    show_open(chromium, messy)
    table = "document.querySelector('[data-array=\"0\"] .conformed')"
    chromium.run(f"(() => {{ {table}.open = true; {table}.querySelector('button').click(); }})()")
    assert set(chromium.run(f"{INK}(['#4e79a7', '#f28e2b', '#59a14f'])")) == {"#f28e2b"}
    chromium.run(f"{table}.querySelector('button').click()")
    assert len(chromium.run(f"{INK}(['#4e79a7', '#f28e2b', '#59a14f'])")) == 3


def test_it_prints_in_light_colours(chromium: Browser, messy: Path) -> None:
    show_open(chromium, messy, dark=True)
    assert len(chromium.call("Page.printToPDF", printBackground=True)["data"]) > 20_000
    chromium.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    ratio, text, _ = chromium.run(CONTRAST)
    assert ratio >= 4.5, text
    assert chromium.run("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert not chromium.run("document.getElementById('search').checkVisibility()")


@pytest.mark.heavy
def test_a_hundred_thousand_partitions(chromium: Browser, tmp_path: Path) -> None:
    report.write(report.page(Aggregation((many(100_000),))), tmp_path / "page.html")
    chromium.show(tmp_path / "page.html", width=800)
    told = hover(chromium, 0.5, 0.3)
    assert told.startswith("v_") and "time " in told
    assert chromium.complaints() == []


@pytest.mark.heavy
@pytest.mark.parametrize(("datasets", "files"), [(1, 100_000), (200, 500)])
def test_an_archive_of_many_files_is_painted_soon(chromium: Browser, tmp_path: Path, datasets: int, files: int) -> None:
    one, arrays = many(files), []
    for number in range(datasets):
        uris = tuple(f"/archive/M{number}/v_{file:06}.nc" for file in range(files))
        matrix = replace(one._matrix, references=replace(one._matrix.references, uris=uris))
        arrays.append(replace(one, _matrix=matrix, file_attrs={"source_id": f"M{number}", "title": f"Output of M{number}"}))
    report.write(report.page(Aggregation(tuple(arrays)), source=["/archive.nca"]), tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 3_000_000
    paints = []
    for _ in range(3):
        chromium.show(tmp_path / "page.html", width=1400)
        paints.append(chromium.run("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
    assert min(paints) < 1000 and chromium.complaints() == []


def test_notebooks_are_readable(chromium: Browser, messy: Path, sample_tiles: Path) -> None:
    agg = aa.open(sample_tiles)
    path = messy.parent / "notebook.html"
    ready = "<!doctype html><html data-ready=yes><meta name=color-scheme content='light dark'><body>"
    path.write_text(f"{ready}{agg._repr_html_()}{agg['value']._repr_html_()}", encoding="utf-8")
    for dark in (False, True):
        chromium.show(path, width=360, dark=dark)
        chromium.run("document.body.style.backgroundColor = 'Canvas'")
        ratio, text, _ = chromium.run(CONTRAST)
        assert ratio >= 4.5, text
        assert chromium.run("document.documentElement.scrollWidth") <= 360
        assert chromium.requests() == [path.as_uri()] and chromium.complaints() == []


#: Words of the visible text that continue on the next line. Paths may, after a separator.
BROKEN = """(() => {
  document.querySelectorAll("details").forEach((d) => (d.open = true));
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), broken = [];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.parentElement.checkVisibility() || node.parentElement.closest("script, style, noscript, select")) continue;
    for (const word of node.textContent.matchAll(/[^\\s/]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index), range.setEnd(node, word.index + word[0].length);
      const tops = new Set([...range.getClientRects()].filter((box) => box.width > 0).map((box) => Math.round(box.top)));
      if (tops.size > 1) broken.push(word[0]);
    }
  }
  return broken;
})()"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 60 datasets, grouped, one of them with a gap."""
    folder = tmp_path_factory.mktemp("archive")
    arrays = []
    for number in range(60):
        times = np.arange(30.0) + 10 * number
        if number == 7:
            times[20:] += 200
        steps = SubArray.from_array(times, dimensions=("time",), units="days since 2000-01-01")
        time = MasterArray.from_subarrays([([(0, 30)], steps)], dimensions=("time",), name="time")
        attrs = {"source_id": f"MODEL-{number // 2}", "table_id": ("day", "6hr")[number % 2], "activity_id": "CMIP"}
        piece = SubArray.from_array(np.zeros((30, number + 1)))
        array = MasterArray.from_subarrays([([(0, 30), (0, number + 1)], piece)], dimensions=("time", "x"), name="tas")
        arrays.append(replace(array, coords={"time": time}, file_attrs={**attrs, "title": f"Output {number}"}))
    path = folder / "page.html"
    report.write(report.page(Aggregation(tuple(arrays)), source=["/data/archive.nca"]), path)
    return path


def rows_of(chromium: Browser) -> list[str]:
    shown = "[...document.querySelectorAll('.row')].filter((r) => r.checkVisibility())"
    return list(
        chromium.run(f"{shown}.map((r) => [...r.querySelector('.facets').children].map((c) => c.textContent).join(' '))")
    )


def choose(chromium: Browser, label: str, text: str) -> None:
    """Choose an option of the form by its text."""
    chromium.run(
        f"(() => {{ const s = [...document.querySelectorAll('#search label')].find((l) => l.firstChild.textContent.trim() === "
        f"{label!r}).querySelector('select'); s.selectedIndex = [...s.options].findIndex((o) => o.text === {text!r});"
        "s.dispatchEvent(new Event('change')); })()"
    )


@pytest.mark.parametrize("width", [390, 1400])
def test_no_word_is_broken(chromium: Browser, archive: Path, messy: Path, width: int) -> None:
    for path in (archive, messy):
        chromium.show(path, width=width)
        assert chromium.run("document.documentElement.scrollWidth") <= width
        assert chromium.run(BROKEN) == []


BARS = """(() => {
  const place = (e) => [e.getBoundingClientRect().left, e.getBoundingClientRect().right].map(Math.round).join(" ");
  const bars = [...document.querySelectorAll(".axis, #rows .bar")].filter((bar) => bar.checkVisibility());
  const counts = [...document.querySelectorAll(".group .count")].map((c) => c.getBoundingClientRect().right);
  return [[...new Set(bars.map(place))], Math.max(...counts) <= bars[0].getBoundingClientRect().left];
})()"""


def test_bars_of_groups_and_rows_have_one_axis(chromium: Browser, archive: Path) -> None:
    chromium.show(archive, width=1400)
    assert chromium.run("document.querySelectorAll('.row .flag:not(:empty)').length") == 1
    for column in (None, "source_id", "table_id"):
        if column:
            choose(chromium, "group by", column)
        places, is_beside = chromium.run(BARS)
        assert len(places) == 1 and is_beside
        flags = chromium.run("[...document.querySelectorAll('.group > summary .flag')].map((f) => f.textContent)")
        assert sorted(set(flags)) == ["", "problems"] and flags.count("problems") == 1


@pytest.mark.heavy
def test_an_archive_takes_few_screens(chromium: Browser, archive: Path, shared_data: Path, tmp_path: Path) -> None:
    chromium.show(archive, width=1400)
    assert chromium.run("document.documentElement.scrollHeight") < 60 * 32 + 400
    report.write(report.page(aa.open(shared_data / "cmip6")), tmp_path / "page.html")
    chromium.show(tmp_path / "page.html", width=1400, height=900)
    assert chromium.run("document.documentElement.scrollHeight") <= 3 * 900
    assert chromium.run("performance.getEntriesByName('first-contentful-paint')[0].startTime") < 5000


def test_bars_lie_under_the_axis(chromium: Browser, archive: Path) -> None:
    for width in (390, 1400):
        chromium.show(archive, width=width)
        boxes = "[...document.querySelectorAll('.axis, .row .bar')].map((e) => e.getBoundingClientRect())"
        same = "Math.abs(bar.left - axis.left) < 1 && Math.abs(bar.right - axis.right) < 1"
        # A busy machine draws rows outside the window later.
        chromium.until(f"(([axis, ...bars]) => bars.length === 60 && bars.every((bar) => {same}))({boxes})")


def test_a_click_opens_the_card_below_its_row(chromium: Browser, archive: Path) -> None:
    chromium.show(archive, width=1400)
    assert text_of(chromium, "#rows").count("shape") == 0
    chromium.run("document.querySelectorAll('.row')[2].querySelector('summary').click()")
    card = text_of(chromium, ".row[open] .array")
    assert card.startswith("tas") and "2000-" in card and "aa.open('/data/archive.nca').select('tas', " in card
    chromium.run("document.querySelector('.row[open] .line button').click()")
    assert chromium.run("getSelection().toString()").startswith("import aggarray as aa; tas = aa.open(")


def test_links_of_problems_open_their_row(chromium: Browser, archive: Path) -> None:
    chromium.show(archive, width=1400)
    choose(chromium, "table_id", "day")
    chromium.run("document.querySelector('#problems a').click()")
    chromium.run("new Promise((done) => setTimeout(done, 50))")
    assert "MODEL-3" in text_of(chromium, ".row[open] .array") and "gap" in text_of(chromium, ".row[open] .facts")
    top = chromium.run("document.querySelector('.row[open]').getBoundingClientRect().top")
    assert 0 <= top < 900


def test_rows_are_filtered_sorted_and_grouped(chromium: Browser, archive: Path) -> None:
    chromium.show(archive, width=1400)
    assert len(rows_of(chromium)) == 60 and chromium.run("document.querySelectorAll('.group').length") == 2
    choose(chromium, "table_id", "day")
    choose(chromium, "source_id", "MODEL-12")
    assert rows_of(chromium) == ["MODEL-12 day"] and text_of(chromium, "#count") == "1 of 60 arrays"
    assert "1 of 30 datasets" in text_of(chromium, "#rows")
    choose(chromium, "source_id", "all")
    choose(chromium, "group by", "nothing")
    choose(chromium, "sort by", "size")
    assert rows_of(chromium)[:2] == ["MODEL-29 day", "MODEL-28 day"] and len(rows_of(chromium)) == 30
    choose(chromium, "table_id", "all")
    choose(chromium, "sort by", "problems")
    assert rows_of(chromium)[0] == "MODEL-3 6hr"
    choose(chromium, "sort by", "start")
    assert rows_of(chromium)[0] == "MODEL-0 day"
    choose(chromium, "group by", "source_id")
    groups = chromium.run("[...document.querySelectorAll('.group > summary')].map((s) => s.innerText)")
    assert len(groups) == 30 and "MODEL-0" in groups[0] and "2 datasets" in groups[0]
    assert chromium.run("document.querySelectorAll('.group > summary .bar .data').length") == 30
    assert chromium.complaints() == []


def test_it_can_be_read_without_scripts(chromium: Browser, archive: Path) -> None:
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.call("Page.navigate", url=archive.as_uri())
        chromium.until("document.readyState === 'complete' && document.querySelectorAll('.row').length === 60")
        assert chromium.run("document.getElementById('search').checkVisibility()") is False
        assert "does not run it" in text_of(chromium, "noscript")
        chromium.run("document.querySelector('.row > summary').click()")
        assert "shape" in text_of(chromium, ".row[open] .array")
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)


def test_the_keyboard_opens_rows(chromium: Browser, archive: Path) -> None:
    chromium.show(archive, width=1400)
    chromium.run("document.querySelector('.row > summary').focus()")
    for kind in ("keyDown", "keyUp"):
        chromium.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    assert chromium.run("document.querySelectorAll('.row[open]').length") == 1
    controls = "[...document.querySelectorAll('input, select, button, canvas:not([aria-hidden])')]"
    nameless = f"{controls}.filter((e) => !(e.labels?.length || e.textContent || e.ariaLabel))"
    assert chromium.run(f"{nameless}.length") == 0
