"""Numbers and figures of the paper: ``python -m paper.figures`` writes them again.

In ``paper.md`` a comment follows each measured number. ``14<!-- open: xarray.open_mfdataset / aggarray -->`` is the time of one
contestant divided by that of another in the table ``open`` of docs/performance-data.md. The table of the paper counts outcomes
of the pairs of files in docs/howto/migrating.md.
"""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sample_data import diagrams
from tests.bench.charts import TABLES, Bar, tables
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER, PAIRS = ROOT / "paper" / "paper.md", ROOT / "docs" / "howto" / "migrating.md"
#: A number of the paper, and its source; the table of the paper.
MEASURED = re.compile(r"(?<![\d.])(?P<shown>\d[\d.,]*)<!-- (?P<table>[\w-]+): (?P<what>[^>]+?) -->")
TABLE = re.compile(r"^\| library \|.*?\n\n", re.MULTILINE | re.DOTALL)
#: Names of functions and operators in full.
LIBRARIES = {
    "open_mfdataset": "xarray, `open_mfdataset`",
    "MFDataset": "netCDF4, `MFDataset`",
    "iris": "Iris",
    "mergetime": "CDO, `mergetime`",
    "ncrcat": "NCO, `ncrcat`",
}
OUTCOMES = ("right", "separate", "error", "wrong")

#: Rows of the chart: a label, a benchmark, its contestant of aggarray.
ROWS = (
    ("open 1,000 files", "open", "aggarray"),
    ("series of a point, 1,000 files", "point-steps", "aggarray, a saved index"),
    ("read 746 MB, deflated", "read-deflated", "aggarray, a saved index"),
    ("read packed integers", "read-packed", "aggarray, a saved index"),
    ("mean over time, 746 MB", "reduce", "aggarray"),
    ("sections of four MPI ranks", "mpi-read", "aggarray.mpi.local"),
    ("read a Zarr array", "zarr3-zstd", "aggarray, a saved index"),
    ("series of a point, Zarr array", "zarr3-zstd-point", "aggarray, a saved index"),
    ("start a process, read a file", "start-file", "aggarray"),
    ("one file of 2,000 variables", "variables-netcdf4", "aggarray"),
)
#: Marker and colour of other software, by the beginning of a contestant's name or a part of it.
SOFTWARE = {
    "xarray": ("o", "#d1602b"),
    "netCDF4": ("s", "#2a7fb8"),
    "h5py": ("D", "#3a9a5c"),
    "hidefix": ("v", "#8a6bbf"),
    "zarr-python": ("P", "#9c755f"),
    "tensorstore": ("X", "#c0448f"),
    "cdo": ("^", "#555555"),
}


def shortened(value: float) -> str:
    """Return a ratio with two significant digits."""
    return f"{value:.1f}" if float(f"{value:.2g}") < 10 else f"{float(f'{value:.2g}'):.0f}"


def outcomes(page: str) -> dict[str, list[str]]:
    """Return the outcomes of the pairs of files by library, from the table of a page (its text)."""
    start = page.index("| pair | what differs |")
    lines = page[start : page.index("\n\n", start)].splitlines()
    heads, _, *rows = [[cell.strip(" *`") for cell in line.strip("|").split("|")] for line in lines]
    columns = zip(*(row[2:] for row in rows), strict=True)
    return dict(zip(heads[2:], map(list, columns), strict=True))


def counts(found: dict[str, list[str]]) -> str:
    """Return the table of the paper: a row for each library."""
    rows = [("library", *OUTCOMES), ("---",) * (len(OUTCOMES) + 1)]
    rows += [(LIBRARIES.get(name, name), *(str(each.count(outcome)) for outcome in OUTCOMES)) for name, each in found.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows) + "\n"


def results() -> dict[str, dict[str, Bar]]:
    """Return the contestants of each benchmark, by name."""
    return {name: {bar.name: bar for bar in bars} for name, _, bars in tables(TABLES.read_text(encoding="utf-8"))}


def filled(text: str) -> str:
    """Return the paper with the numbers that its comments name, and its table."""
    measured = results()

    def number(match: re.Match[str]) -> str:
        slow, fast = (measured[match["table"]][name] for name in match["what"].split(" / "))
        return f"{shortened(slow.median / fast.median)}<!-- {match['table']}: {match['what']} -->"

    table = counts(outcomes(PAIRS.read_text(encoding="utf-8")))
    return TABLE.sub(lambda _: table, MEASURED.sub(number, text))


def matrix(path: Path) -> None:
    """Draw the sample archive: its files and, below, the partitions of the master array."""
    from matplotlib import pyplot as plt
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    shapes = list(diagrams.archive())
    width, height = max(s.x + s.width for s in shapes), max(s.y + s.height for s in shapes)
    figure = plt.figure(figsize=(width / 100, height / 100), layout=None)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height + 2, -2))
    axes.set_axis_off()
    for shape in shapes:
        if isinstance(shape, diagrams.Arrow):
            ends = {"xy": (shape.to_x, shape.to_y), "xytext": (shape.x, shape.y)}
            axes.annotate("", **ends, arrowprops={"arrowstyle": "->", "color": "#666666", "shrinkA": 0, "shrinkB": 0})
            continue
        if shape.colour is not None:
            axes.add_patch(Rectangle((shape.x, shape.y), shape.width, shape.height, facecolor=shape.colour, edgecolor="white"))
        light = shape.colour is None or sum(to_rgb(shape.colour)) > 1.75
        colour = "#222222" if light else "white"
        middle = shape.x + shape.width / 2, shape.y + shape.height / 2
        axes.text(*middle, shape.text, color=colour, ha="center", va="center", fontsize=7.5, linespacing=1.5)
    save(figure, path)


def ratios(path: Path) -> None:
    """Draw the time of other software divided by that of aggarray, a row for each benchmark."""
    from matplotlib import pyplot as plt

    measured = results()
    figure, axes = plt.subplots(figsize=(7.2, 0.32 * len(ROWS) + 1), layout="constrained")
    axes.axvline(1, color="#333333", linewidth=1)
    for row, (_, name, ours) in enumerate(ROWS):
        for bar in measured[name].values():
            if "aggarray" not in bar.name and (software := software_of(bar.name)):
                marker, colour = SOFTWARE[software]
                axes.plot(bar.median / measured[name][ours].median, row, marker, color=colour, label=software, markersize=6)
    axes.set_xscale("log")
    axes.set_yticks(range(len(ROWS)), [label for label, _, _ in ROWS])
    axes.set_ylim(len(ROWS) - 0.5, -0.5)
    ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
    axes.set_xlim(ticks[0], ticks[-1])
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("time of other software / time of aggarray")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    legend(axes)
    save(figure, path)


def software_of(contestant: str) -> str | None:
    """Return the software that a contestant is; None for bounds and loops that read less than the array."""
    if "over headers" in contestant:
        return None
    return next((name for name in SOFTWARE if contestant.startswith(name) or contestant.endswith(f" by {name}")), None)


def legend(axes: "Axes") -> None:
    """Add a legend above the chart, with each software once."""
    handles: dict[str, Any] = {}
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        handles.setdefault(label, handle)
    names = [name for name in SOFTWARE if name in handles]
    shown = ["CDO" if name == "cdo" else name for name in names]
    place = {"loc": "outside upper center", "ncols": len(names), "frameon": False, "fontsize": 8.5}
    axes.figure.legend([handles[name] for name in names], shown, handletextpad=0.2, columnspacing=1.2, **place)


def save(figure: Any, path: Path) -> None:
    """Write a figure as PNG without metadata, and close it."""
    from matplotlib import pyplot as plt

    figure.savefig(path, dpi=200, metadata={"Software": None})
    plt.close(figure)


FIGURES = {"matrix.png": matrix, "ratios.png": ratios}


def draw(name: str, folder: Path) -> None:
    """Write a figure into a folder, without a window and whatever the settings of matplotlib are."""
    import matplotlib
    from matplotlib import style

    matplotlib.use("Agg")
    with style.context("default"):
        FIGURES[name](folder / name)


def main() -> None:
    """Write the figures, and the numbers into the paper."""
    for name in FIGURES:
        draw(name, PAPER.parent)
        print(PAPER.parent / name)
    PAPER.write_text(filled(PAPER.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
