"""Text tables: widths, alignment, shortened and continued texts."""

import pytest

from aggarray.display.table import shortened_middle, table, terminal_width

pytestmark = pytest.mark.quick

ROWS = [
    [
        "tas",
        "MIROC6",
        "(time: 780, lat: 128, lon: 256)",
        7,
        "units differ: 'K' and 'Pa' do not convert: /data/a.nc, /data/b.nc",
    ],
    ["pr", "EC-Earth3-AerChem", "(time: 36500, lat: 2, lon: 2)", 120, "no"],
]
HEAD = ["name", "source_id", "shape", "files", "reason"]


def test_without_a_width_nothing_is_shortened() -> None:
    lines = table(ROWS, HEAD).splitlines()
    assert len(lines) == 4 and "…" not in table(ROWS, HEAD)
    assert set(lines[1]) == {"-", " "} and lines[2].startswith("tas   MIROC6             (time: 780, lat: 128")


def test_numbers_and_named_columns_are_aligned_to_the_right() -> None:
    lines = table([["a", 7, "1.0 kB"], ["b", 120, "12.0 kB"]], ["name", "files", "size"], right=["size"]).splitlines()
    assert lines == ["name  files     size", "----  -----  -------", "a         7   1.0 kB", "b       120  12.0 kB"]


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_lines_fit_the_width(width: int) -> None:
    lines = table(ROWS, HEAD, width=width, wrap="reason").splitlines()
    assert max(map(len, lines)) <= width and len(lines) > 4
    assert "files" in lines[0] and any(line.split()[-2:] == ["120", "no"] for line in lines)


def test_a_wrapped_text_breaks_between_words() -> None:
    lines = table([["x", "one two-three four"]], ["k", "text"], width=14, wrap="text").splitlines()
    assert lines[2:] == ["x  one", "   two-three", "   four"]


def test_the_widest_column_is_shortened_in_its_middle() -> None:
    lines = table([["EC-Earth3-AerChem", "gn"]], ["source_id", "grid"], width=17).splitlines()
    assert lines[2] == "EC-Ea…rChem  gn" and max(map(len, lines)) == 17


@pytest.mark.parametrize(
    ("text", "most", "short"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abc…fg"),
        ("(time: 1980, plev: 19, lat: 192, lon: 288)", 36, "(time: 1980, plev: 19, …, lon: 288)"),
        ("(time: 1980, plev: 19, lat: 192, lon: 288)", 25, "(time: 1980, …, lon: 288)"),
        ("(time: 1980, plev: 19, lat: 192, lon: 288)", 18, "(time: 1980, …)"),
        ("(time: 1980, lon: 288)", 12, "(time:… 288)"),
    ],
)
def test_texts_lose_their_middle_and_lists_whole_items(text: str, most: int, short: str) -> None:
    assert len(short) <= most
    assert shortened_middle(text, most) == short


def test_no_rows_and_no_columns() -> None:
    assert table([], ["a", "b"]) == "a  b\n-  -" and table([], []) == "\n"


def test_output_that_is_not_a_terminal_has_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert terminal_width() is None
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert terminal_width() == 40


def test_whole_columns_shrink_last_and_an_optional_one_is_left_out() -> None:
    rows = [["EC-Earth3-AerChem", "(time: 36500, lat: 2, lon: 2)", "1950-2014"], ["MIROC6", "(time: 780)", "1850-2014"]]
    head = ["source_id", "shape", "time"]
    how = {"whole": ["time"], "optional": "shape"}
    assert table(rows, head, width=47, **how).splitlines()[2].startswith("EC-Earth3-AerChem  (time: 36500, …)")
    narrow = table(rows, head, width=30, **how).splitlines()
    assert narrow[0].split() == ["source_id", "time"] and narrow[2].split() == ["EC-Earth3-AerChem", "1950-2014"]
    narrowest = table(rows, head, width=20, **how).splitlines()
    assert all(len(line) <= 20 and line.endswith("-2014") for line in narrowest[2:])
    assert max(map(len, table(rows, head, width=17, **how).splitlines())) <= 18
