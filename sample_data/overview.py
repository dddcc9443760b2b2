"""Picture of the overview of a page, for docs/pictures.md: see ``sample_data.pictures``."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import netCDF4
import numpy as np

import aggarray as aa
from aggarray.display import palette
from aggarray.display.markup import escaped
from aggarray.display.overview import HEIGHT, WIDTH, Overview, bar_paths, overview_of
from aggarray.display.timeline import ticks

#: Positions of columns, width of the bars, distance of rows, all in pixels.
_COLUMNS, _LEFT, _BAR, _ROW = (8, 90, 190), 262, 400, 22
_COLOURS = {"data": palette.DATA, "overlap": palette.OVERLAP, "hole": palette.HOLE, "gap": palette.GAP}
#: Models, experiments and years of each file: a decade is missing, and two files overlap.
_FILES = (
    ("M1", "historical", 1850, 2015),
    ("M1", "ssp585", 2015, 2101),
    ("M2", "historical", 1850, 1950),
    ("M2", "historical", 1960, 2015),
    ("M2", "ssp585", 2015, 2101),
    ("M3", "historical", 1950, 2015),
    ("M3", "ssp585", 2015, 2060),
    ("M3", "ssp585", 2050, 2101),
)


def _write(path: Path, source: str, experiment: str, first: int, last: int) -> None:
    months = np.arange(np.datetime64(f"{first}-01"), np.datetime64(f"{last}-01"))
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"source_id": source, "experiment_id": experiment, "frequency": "mon"})
        file.createDimension("time", len(months))
        time = file.createVariable("time", "f8", ("time",))
        time.setncatts({"units": "days since 1850-01-01", "standard_name": "time"})
        time[:] = (months.astype("M8[D]") - np.datetime64("1850-01-01")).astype(int)
        file.createVariable("tas", "f4", ("time",)).units = "K"


def overview() -> Overview:
    """Return the overview of the files."""
    with tempfile.TemporaryDirectory() as folder:
        for number, dataset in enumerate(_FILES):
            _write(Path(folder, f"{number}.nc"), *dataset)
        agg = aa.open(folder)
        return overview_of(agg.arrays, agg.refusals)


def picture() -> str:
    """Return the overview as SVG: facets, bars on one axis, times."""
    shown = overview()
    size = (_LEFT + _BAR + 110, _ROW * (len(shown.rows) + 1) + 8)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" viewBox="0 0 {size[0]} {size[1]}"'
    style = 'font-family="sans-serif" font-size="13">\n<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([f"{head} {style}", *_shapes(shown), "</svg>"]) + "\n"


def _shapes(shown: Overview) -> Iterator[str]:
    limits = shown.limits or (0.0, 1.0)
    for x, name in zip(_COLUMNS, shown.names, strict=True):
        yield f'<text x="{x}" y="16" fill="#555">{escaped(name)}</text>'
    for year, text in ticks(limits):
        x = _LEFT + _BAR * (year - limits[0]) / (limits[1] - limits[0])
        yield f'<text x="{x:.1f}" y="16" fill="#555" font-size="11" text-anchor="middle">{text}</text>'
    for number, row in enumerate(sorted(shown.rows, key=lambda row: row.cells)):
        top = _ROW * (number + 1)
        for x, cell in zip(_COLUMNS, row.cells, strict=True):
            yield f'<text x="{x}" y="{top + 16}" fill="#222">{escaped(cell)}</text>'
        place = f'transform="translate({_LEFT} {top + 5}) scale({_BAR / WIDTH:g} {14 / HEIGHT:g})"'
        for kind, path in bar_paths(row.parts, limits).items():
            yield f'<path fill="{_COLOURS[kind]}" {place} d="{path}"/>'
        yield f'<text x="{_LEFT + _BAR + 12}" y="{top + 16}" fill="#222">{row.period}</text>'
