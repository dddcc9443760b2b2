"""Pictures of arrays that show which file covers which part."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import netCDF4
import numpy as np
import pytest

import aggarray as aa
from aggarray import MasterArray, SubArray
from aggarray.display import palette


@pytest.fixture
def pyplot() -> Any:
    """Matplotlib without a screen."""
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib, of the extra plot, is not installed")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def tiled(rows: int, columns: int, hole: tuple[int, int] | None = None) -> MasterArray:
    pieces = [
        ([(2 * i, 2 * i + 2), (3 * j, 3 * j + 3)], SubArray.from_array(np.zeros((2, 3))))
        for i in range(rows)
        for j in range(columns)
        if (i, j) != hole
    ]
    return MasterArray.from_subarrays(pieces, dimensions=("time", "x"), shape=(2 * rows, 3 * columns), name="v")


def rectangles(ax: Any) -> list[tuple[float, float, float, float, bool]]:
    """Left, bottom, width, height of every patch, and whether it is hatched."""
    return [(*p.get_xy(), p.get_width(), p.get_height(), p.get_hatch() is not None) for p in ax.patches]


def test_every_partition_is_drawn(pyplot: Any) -> None:
    ax = tiled(2, 2, hole=(1, 0)).plot_coverage()
    assert rectangles(ax) == [(0, 0, 2, 3, False), (0, 3, 2, 3, False), (2, 0, 2, 3, True), (2, 3, 2, 3, False)]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xlim(), ax.get_ylim()) == ("time", "x", (0, 4), (0, 6))
    assert ax.get_title() == "v: 0 files"
    ax.figure.canvas.draw()


@pytest.mark.parametrize("key", [(slice(None), 0), (0, 0), ([3, 0, 1],), (slice(None), slice(None), slice(None))[:2]])
def test_any_number_of_dimensions(pyplot: Any, key: tuple[Any, ...]) -> None:
    a = tiled(2, 2).lazy[key]
    ax = a.plot_coverage()
    assert len(rectangles(ax)) == len(a.partitions)
    ax.figure.canvas.draw()


def test_large_matrices_are_thinned(pyplot: Any) -> None:
    a = tiled(1000, 1)
    ax = a.plot_coverage()
    assert len(ax.patches) == 300 and ax.get_xlim() == (0, 2000)
    assert ax.get_title() == "v: 0 files, up to 4 partitions share a cell"
    assert rectangles(ax)[1][:3:2] == (6, 6) and sum(r[2] for r in rectangles(ax)) == 2000


def test_given_axes_are_used(pyplot: Any) -> None:
    ax = pyplot.figure().add_subplot()
    assert tiled(1, 2).plot_coverage(ax) is ax and ax.get_xlabel() == "x"


def test_files_have_colours_and_times_are_dates(pyplot: Any, tmp_path: Any) -> None:
    pieces = []
    for i in range(3):
        with netCDF4.Dataset(tmp_path / f"{i}.nc", "w") as file:
            file.createDimension("time", 2)
            file.createVariable("v", "f4", ("time",))[:] = 0
        pieces.append(([(2 * i, 2 * i + 2)], SubArray.from_file(tmp_path / f"{i}.nc", "v")))
    a = MasterArray.from_subarrays(pieces, dimensions=("time",), name="v")
    days = SubArray.from_array(np.arange(6.0), dimensions=("time",), units="days since 2000-01-01")
    a = replace(a, coords={"time": MasterArray.from_subarrays([([(0, 6)], days)], dimensions=("time",))})
    ax = a.plot_coverage()
    assert ax.get_title() == "v: 3 files" and len({p.get_facecolor() for p in ax.patches}) == 3
    start = (np.datetime64("2000-01-01") - np.datetime64("1970-01-01")).astype(int)
    assert [r[0] - start for r in rectangles(ax)] == [0, 2, 4] and ax.get_xlim() == (start, start + 6)
    assert [r[1] for r in rectangles(ax)] == [0, 1, 2] and [t.get_text() for t in ax.get_yticklabels()] == [
        "0.nc",
        "1.nc",
        "2.nc",
    ]
    assert ax.get_ylim() == (3, 0)
    ax.figure.canvas.draw()


def test_gaps_in_time_stay_free(pyplot: Any) -> None:
    a = tiled(2, 1)
    days = SubArray.from_array(np.array([0.0, 1, 5, 6]), dimensions=("time",), units="days since 2000-01-01")
    a = replace(a, coords={"time": MasterArray.from_subarrays([([(0, 4)], days)], dimensions=("time",))})
    boxes = rectangles(a.plot_coverage())
    assert [boxes[1][0] - boxes[0][0], boxes[0][2], boxes[1][2]] == [5, 2, 2]


def test_odd_names_are_text(pyplot: Any, tmp_path: Any) -> None:
    pieces = []
    for i, name in enumerate(("$a_{b$.nc", "line\nbreak.nc")):
        with netCDF4.Dataset(tmp_path / name, "w") as file:
            file.createDimension("x", 1)
            file.createVariable("v", "f4", ("x",))[:] = 0
        pieces.append(([(i, i + 1)], SubArray.from_file(tmp_path / name, "v")))
    ax = MasterArray.from_subarrays(pieces, dimensions=("x",), name="$v_{$").plot_coverage()
    ax.figure.canvas.draw()
    assert [t.get_text() for t in ax.get_yticklabels()] == ["$a_{b$.nc", "line\\nbreak.nc"]


def test_matplotlib_is_optional() -> None:
    script = (
        "import sys, numpy, aggarray as aa; sys.modules['matplotlib'] = None\n"
        "a = aa.MasterArray.from_subarrays([([], aa.SubArray.from_array(1.0))], dimensions=())\n"
        "try: a.plot_coverage()\nexcept aa.AggregationError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'aggarray[plot]'" in done.stdout
    assert issubclass(aa.AggregationError, ValueError)


def test_holes_and_virtual_partitions_have_the_hatches_of_the_palette(pyplot: Any, sample_tiles: Any) -> None:
    from matplotlib.colors import to_hex

    holes = [p for p in tiled(2, 2, hole=(1, 0)).plot_coverage().patches if p.get_hatch()]
    assert [(p.get_hatch(), to_hex(p.get_edgecolor())) for p in holes] == [(palette.HOLE_HATCH, palette.HOLE)]
    value = aa.open(sample_tiles)["value"]
    drawn = [(p.get_hatch(), to_hex(p.get_edgecolor())) for p in value.plot_coverage().patches]
    assert drawn.count((palette.VIRTUAL_HATCH, palette.VIRTUAL)) == sum(p.virtual for p in value.partitions) == 22
    text = value._repr_html_()
    assert f'stroke="{palette.VIRTUAL}"' in text and f'stroke="{palette.HOLE}"' in tiled(2, 2, hole=(1, 0))._repr_html_()
