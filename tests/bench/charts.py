"""Draw the charts of docs/performance.md from the tables of benchmarks: ``python -m tests.bench.charts``.

A chart is an SVG of bars, one per contestant: the median of its work, and a line from the minimum to the maximum.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from tests.support.paths import ROOT

#: Tables that benchmarks printed, and the folder of the charts.
TABLES, FOLDER = ROOT / "docs" / "performance-data.md", ROOT / "docs" / "images" / "performance"
#: Benchmarks with a chart on docs/performance.md.
CHARTS = (
    *("open", "index", "point-steps", "point-blocks", "read-deflated", "read-packed", "netcdf3-records", "plain-contiguous"),
    *("zarr3-zstd", "zarr3-zstd-point", "xarray-engine", "mpi-read", "variables-netcdf4", "start-index", "start-file"),
)

#: Pixels: width of a chart, height of a contestant, of its bar and of the title, width left for the seconds beside a bar.
WIDTH, ROW, BAR, TITLE, BESIDE = 480, 40, 12, 34, 110
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#333}.title{font-weight:600}.bar{fill:#9aa5b1}.ours{fill:#1668b8}"
    ".spread{stroke:#333;stroke-width:1.5}@media(prefers-color-scheme:dark){text{fill:#ddd}.bar{fill:#66707a}"
    ".ours{fill:#4f9fe8}.spread{stroke:#ddd}}"
)
#: How often a slow contestant ran.
_ROUNDS = re.compile(r" \(\d+ rounds?\)$")
_SECONDS = re.compile(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)")


@dataclass(frozen=True, slots=True)
class Bar:
    """Seconds that the work of a contestant took: median, minimum, maximum."""

    name: str
    median: float
    low: float
    high: float


def tables(text: str) -> Iterator[tuple[str, str, list[Bar]]]:
    """Yield name, title and bars of each table in Markdown text."""
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        heading, *lines = section.splitlines()
        name, _, title = heading.partition(";")[0].partition(": ")
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
        bars = [
            Bar(_ROUNDS.sub("", row[0]), *map(float, seconds.groups())) for row in rows if (seconds := _SECONDS.match(row[1]))
        ]
        yield name, title, bars


def chart(title: str, bars: list[Bar]) -> str:
    """Return the SVG of a benchmark; shorter is faster."""
    scale = (WIDTH - BESIDE) / max(bar.high for bar in bars)
    height = TITLE + ROW * len(bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">',
        f"<title>{escape(title)}: seconds, shorter is faster</title><style>{_STYLE}</style>",
        f'<text class="title" x="0" y="16">{escape(title[:1].upper() + title[1:])}</text>',
    ]
    for number, bar in enumerate(bars):
        top = TITLE + ROW * number
        middle, end = top + 18 + BAR / 2, bar.high * scale
        colour = "ours" if "aggarray" in bar.name else "bar"
        lines += [
            f'<text x="0" y="{top + 12}">{escape(bar.name)}</text>',
            f'<rect class="{colour}" x="0" y="{top + 18}" width="{max(1.0, bar.median * scale):.1f}" height="{BAR}"/>',
            f'<path class="spread" d="M{bar.low * scale:.1f} {middle}H{end:.1f}"/>',
            f'<text x="{end + 8:.1f}" y="{top + 29}">{bar.median:.3g} s</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def charts(text: str) -> dict[str, str]:
    """Return the SVG of each benchmark of `CHARTS` that has a table in Markdown text, by file name."""
    return {f"{name}.svg": chart(title, bars) for name, title, bars in tables(text) if name in CHARTS}


def main() -> None:
    """Write the charts of the tables in `TABLES`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, svg in charts(TABLES.read_text(encoding="utf-8")).items():
        (FOLDER / name).write_text(svg, encoding="utf-8")
        print(FOLDER / name)


if __name__ == "__main__":
    sys.exit(main())
