"""The paper has the form of its journal, real references, and the numbers and figures that were measured."""

import re
from pathlib import Path

import numpy as np
import pytest

from paper.figures import FIGURES, PAPER, TABLES, counts, draw, filled, outcomes, shortened, software_of
from tests.bench.charts import tables

TEXT = PAPER.read_text(encoding="utf-8")
_, HEAD, BODY = re.split(r"^---$", TEXT, maxsplit=2, flags=re.MULTILINE)
#: Sections that the journal requires, and the limits of its words.
SECTIONS = (
    *("Summary", "Statement of need", "State of the field", "Software design", "Performance", "Research impact statement"),
    *("AI usage disclosure", "Acknowledgements", "References"),
)
WORDS = (750, 1750)
#: Numbers, names with digits left out.
NUMBER = re.compile(r"(?<![\w.@-])\d[\d,]*(?:\.\d+)?(?![\w-])")


def test_the_head() -> None:
    head = pytest.importorskip("yaml", reason="no YAML: the extra 'docs'").safe_load(HEAD)
    assert head["title"].startswith("aggarray") and len(head["tags"]) >= 3
    affiliations = {entry["index"] for entry in head["affiliations"]}
    assert head["authors"] and all(author["affiliation"] in affiliations for author in head["authors"])
    assert (PAPER.parent / head["bibliography"]).is_file() and re.fullmatch(r"\d+ [A-Z][a-z]+ \d{4}", head["date"])


def test_the_sections() -> None:
    assert tuple(re.findall(r"^# (.+)$", BODY, re.MULTILINE)) == SECTIONS
    plain = re.sub(r"<!--.*?-->|!\[|\]\([^)]*\)|\\\w+\{[^}]*\}|@\w+|[|#*`\[\]{}-]+", " ", BODY.partition("# References")[0])
    assert WORDS[0] <= len(plain.split()) <= WORDS[1]


def test_every_reference_is_cited_and_can_be_found() -> None:
    entries = re.findall(r"^@\w+\{(\w+),\n(.*?)^\}", (PAPER.parent / "paper.bib").read_text(encoding="utf-8"), re.M | re.S)
    fields = {key: dict(re.findall(r"^  (\w+) = \{(.*)\},?$", text, re.MULTILINE)) for key, text in entries}
    assert sorted(fields) == sorted(set(re.findall(r"@(\w+)", BODY)))
    for key, entry in fields.items():
        assert {"author", "title"} <= entry.keys() and entry.keys() & {"doi", "url"}, key
        assert re.fullmatch(r"10\.\d{4,}/\S+", entry.get("doi", "10.1234/x")), key


def test_measured_numbers_are_those_of_the_results() -> None:
    """`python -m paper.figures` writes them again."""
    assert filled(TEXT) == TEXT


def test_numbers_are_taken_from_the_results() -> None:
    table = {bar.name: bar for bar in next(bars for name, _, bars in tables(TABLES.read_text()) if name == "read-packed")}
    expected = table["xarray with dask"].median / table["hidefix, a loop"].median
    (ratio,) = re.findall(r"([\d.]+)<!--", filled("1,9<!-- read-packed: xarray with dask / hidefix, a loop -->"))
    assert float(ratio) == pytest.approx(expected, rel=0.05)
    with pytest.raises(KeyError):
        filled("1<!-- read-packed: nothing / hidefix, a loop -->")


def test_sizes_are_those_of_the_results() -> None:
    """Numbers without a comment, such as sizes of data, are in the tables."""
    known = set(NUMBER.findall(TABLES.read_text(encoding="utf-8")))
    text = re.sub(r"\d[\d.,]*<!--.*?-->|Figure \d", "", BODY.partition("# Performance\n")[2].partition("# Research")[0])
    assert set(NUMBER.findall(text)) == {"1,000", "746", "2,000"} <= known


@pytest.mark.parametrize(("ratio", "shown"), [(13.77, "14"), (7.0, "7.0"), (1.749, "1.7"), (9.96, "10"), (128.4, "130")])
def test_ratios_have_two_digits(ratio: float, shown: str) -> None:
    assert shortened(ratio) == shown


def test_outcomes_of_pairs() -> None:
    page = "| x |\n\n| pair | what differs | a | b |\n| --- | --- | --- | --- |\n| `p` | one | right | **wrong** |\n\n| y |\n"
    assert outcomes(page) == {"a": ["right"], "b": ["wrong"]}
    *_, first, second = counts(outcomes(page)).splitlines()[:4]
    assert (first, second) == ("| a | 1 | 0 | 0 | 0 |", "| b | 0 | 0 | 0 | 1 |")
    assert "| aggarray | 9 | 3 | 0 | 0 |\n" in filled("| library | none |\n\n")


@pytest.mark.parametrize(
    ("contestant", "software"),
    [
        ("xarray.open_mfdataset, tuned", "xarray"),
        ("cdo -timmean -mergetime", "cdo"),
        ("each rank by h5py", "h5py"),
        ("netCDF4, a loop over headers", None),
        ("lower bound: decode once, fill the sections", None),
    ],
)
def test_contestants_are_software(contestant: str, software: str | None) -> None:
    assert software_of(contestant) == software


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_figures_are_those_of_the_results(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m paper.figures` draws them again."""
    matplotlib = pytest.importorskip("matplotlib", reason="no matplotlib: the extra 'plot'")
    assert re.findall(r"\]\((\w+\.png)\)", BODY) == list(FIGURES)
    monkeypatch.setitem(matplotlib.rcParams, "savefig.transparent", True)
    monkeypatch.setitem(matplotlib.rcParams, "figure.constrained_layout.use", True)
    draw(name, tmp_path)
    drawn, stored = (matplotlib.pyplot.imread(path) for path in (tmp_path / name, PAPER.parent / name))
    # Another version of matplotlib may have other fonts.
    assert drawn.shape[2] == stored.shape[2] and np.allclose(drawn.shape, stored.shape, rtol=0.1)
    if drawn.shape == stored.shape:
        assert np.abs(drawn - stored).mean() < 0.001
