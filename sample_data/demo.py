"""Demonstration of aggarray on the sample data: ``make demo``.

Opens a messy archive as one array, shows its partitions and what is conformed, compares values with those of netCDF4-python,
joins ten tiles with unaligned edges, sorts out a messy folder, saves an index, and measures reads, views and fresh processes.
Every claim is checked; a wrong one fails the run.
"""

import html
import re
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

import aggarray as aa
from aggarray.display import report
from aggarray.display.facts import conformed
from aggarray.display.table import table
from aggarray.export.extract import extract
from sample_data.damaged import damaged
from sample_data.foreign import foreign
from sample_data.interop import collective_reads, distributed, four_ranks, memory_views, profiles, xarray_and_dask
from sample_data.output import HERE, check, show


def archive() -> None:
    """Open twelve files in seven formats as one array."""
    show("One array out of twelve files")
    agg = aa.open(HERE / "archive")
    tas = agg["tas"]
    print(f">>> aa.open('sample_data/archive')['tas']\n{tas!r}\n")
    rows = [
        [
            p.index[0],
            f"{p.location[0][0]}:{p.location[0][1]}",
            Path(p.data.uri).name,
            p.data.format,
            " ".join(p.pdimensions),
            p.punits,
            p.data.dtype,
        ]
        for p in tas.partitions
    ]
    print(table(rows, ["partition", "days", "file", "format", "dimensions", "units", "dtype"]))
    check(len(agg) == 1 and not agg.refusals and not agg.skipped, "one array, nothing refused, nothing skipped")
    check(tas.shape == (365, 18, 36) and tas.pmshape == (12,), "365 days from 12 partitions")

    show("What reading conforms")
    rows = [[c.kind, c.found, c.master, c.count, Path(c.example or "").name] for c in conformed(tas)]
    print(table(rows, ["what", "in the file", "in the array", "files", "such as"]))

    show("The same values as netCDF4-python gives")
    months = [(3, "degC"), (4, "north to south"), (8, "packed in int16"), (9, "hours since 1970"), (10, "lon, lat, time")]
    rows = [compared(tas, month, what) for month, what in months]
    print(table(rows, ["file", "what differs", "tas[day, 4, 7]", "netCDF4-python, converted", "whole month equal"]))
    check(all(row[-1] == "yes" for row in rows), "every value of these months equals netCDF4-python's, converted")
    times = tas.coords["time"].datetimes()
    check(
        bool((np.diff(times) == np.timedelta64(1, "D")).all()),
        f"time runs day by day from {times[0]:.10} to {times[-1]:.10}".replace("'", ""),
    )


def compared(tas: aa.MasterArray, month: int, what: str) -> list[object]:
    """Return a row that compares one month with netCDF4-python, conformed by hand."""
    path = HERE / "archive" / f"tas_2001{month:02}.nc"
    with netCDF4.Dataset(path) as file:
        variable = file["tas"]
        theirs = np.ma.filled(variable[:].astype("f8"), np.nan)
        if variable.units == "degC":
            theirs = theirs + 273.15
        if variable.dimensions == ("lon", "lat", "time"):
            theirs = theirs.transpose(2, 1, 0)
        if file["lat"][0] > file["lat"][-1]:
            theirs = theirs[:, ::-1]
    start, stop = tas.partitions[month - 1].location[0]
    ours = tas[start:stop]
    equal = np.array_equal(ours, theirs, equal_nan=True)
    return [path.name, what, f"{ours[0, 4, 7]:.6f} K", f"{theirs[0, 4, 7]:.6f} K", "yes" if equal else "NO"]


def selecting() -> None:
    """Select lazily."""
    show("Selecting by label, lazily")
    tas = aa.open(HERE / "archive")["tas"]
    spring = tas.sel(time=slice("2001-03", "2001-05"), lat=slice(0, 60)).to_units("degC")
    print(f">>> tas.sel(time=slice('2001-03', '2001-05'), lat=slice(0, 60)).to_units('degC')\n{spring!r}\n")
    values = tas[59:151, 9:15] - 273.15
    check(
        spring.pmshape == (3,) and np.allclose(spring[:], values, equal_nan=True),
        "three partitions, equal to the same selection read first",
    )


def tiles() -> None:
    """Join ten tiles with unaligned edges to one matrix of 4 x 6 partitions."""
    show("Ten tiles whose edges do not align")
    agg = aa.open(HERE / "tiles")
    value = next(iter(agg))
    print(f"{value!r}\n")
    matrix = value.partitions
    rows = []
    for i, (low, high) in enumerate(pairwise(matrix.edges[0].tolist())):
        cells = [matrix[i, j] for j in range(matrix.shape[1])]
        rows.append([f"y {low}:{high}", *(f"{Path(p.data.uri).stem[-2:]}{' part' if p.virtual else ''}" for p in cells)])
    print(table(rows, ["tile", *(f"x {low}:{high}" for low, high in pairwise(matrix.edges[1].tolist()))]))
    y, x = np.mgrid[0:8, 0:7]
    check(value.pmshape == (4, 6), "4 x 6 partitions out of 10 files, virtual ones where a tile is cut")
    check(np.array_equal(value[:], 10 * y + x), "every value is in its place")


def write_days(path: Path, days: list[float], *, lats: list[float], lons: list[float], units: str = "mm") -> None:
    """Write a small file: the value is day + latitude / 100 + (longitude modulo 360) / 10,000."""
    with netCDF4.Dataset(path, "w") as file:
        axes = {"time": (days, "days since 2001-01-01"), "lat": (lats, "degrees_north"), "lon": (lons, "degrees_east")}
        for name, (values, unit) in axes.items():
            file.createDimension(name, len(values))
            axis = file.createVariable(name, "f8", (name,))
            axis.units = unit
            axis[:] = values
        rain = file.createVariable("pr", "f8", ("time", "lat", "lon"))
        rain.setncatts({"units": units, "standard_name": "lwe_thickness_of_precipitation_amount"})
        t, y, x = np.meshgrid(days, lats, np.mod(lons, 360), indexing="ij")
        rain[:] = t + y / 100 + x / 10_000


def write_messy(folder: Path, lats: list[float], lons: list[float]) -> None:
    """Write interleaved, reversed, rolled, duplicate and distant files, and files with another grid or quantity."""
    files: dict[str, dict[str, Any]] = {
        "odd_days.nc": {"days": [0, 2, 4], "lats": lats, "lons": lons},
        "even_days_south_up.nc": {"days": [1, 3, 5], "lats": lats[::-1], "lons": lons},
        "rolled.nc": {"days": [6, 7], "lats": lats, "lons": [-180.0, -90.0, 0.0, 90.0]},
        "copy_of_rolled.nc": {"days": [6, 7], "lats": lats, "lons": [-180.0, -90.0, 0.0, 90.0]},
        "after_a_gap.nc": {"days": [10, 11], "lats": lats, "lons": lons},
        "other_grid.nc": {"days": [8, 9], "lats": [-45.0, 0.5, 45.0], "lons": lons},
        "mass.nc": {"days": [8, 9], "lats": lats, "lons": lons, "units": "kg m-2"},
    }
    for file, what in files.items():
        write_days(folder / file, **what)


def messy() -> None:
    """Open a folder of inconsistent files."""
    show("A messy folder: what joins, and why the rest stays separate")
    lats, lons = [-45.0, 0.0, 45.0], [0.0, 90.0, 180.0, 270.0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_messy(folder, lats, lons)
        agg = aa.open(folder)
        rows = [
            [", ".join(sorted({Path(p.data.uri).name for p in a.partitions if p.data})), a.shape, a.pmshape, a.units]
            for a in agg
        ]
        print(table(rows, ["files", "shape", "partitions", "units"]))
        print("\nstayed separate:", *(f"  {r.reason}" for r in agg.refusals), sep="\n")
        report = agg.check()
        print("\nproblems:", *(f"  [{p.kind}] {p.message.replace(name, '...')}" for p in report.problems), sep="\n")
        joined = max(agg, key=lambda a: a.size)
        t, y, x = np.meshgrid([*range(8), 10, 11], lats, lons, indexing="ij")
        check(np.array_equal(joined[:], t + y / 100 + x / 10_000), "ten days out of four files, every value in its place")
        check(len(agg) == 3 and len(agg.refusals) == 2, "another grid and another quantity stay separate, with reasons")
        check([p.kind for p in report.problems] == ["gap", "duplicate"], "the gap and the copy are reported")


def index() -> None:
    """Save an index; open it again, after moving it, and with more files."""
    show("An index: aggregated once, open in milliseconds")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "here"
        (folder / "months").mkdir(parents=True)
        for number in range(6):
            days = [30.0 * number + day for day in range(30)]
            path = folder / "months" / f"pr_{number}.nc"
            write_days(path, days, lats=[-45.0, 0.0, 45.0], lons=[0.0, 120.0, 240.0], units="mm" if number % 2 else "cm")
        started = time.perf_counter()
        agg = aa.open(folder / "months" / "pr_[0-4].nc")
        opened = time.perf_counter()
        report = agg.save(folder / "pr.nca")
        saved = time.perf_counter()
        again = aa.open(folder / "pr.nca")
        reopened = time.perf_counter()
        rows = [
            ["aa.open(files)", f"{opened - started:.4f} s"],
            ["agg.save('pr.nca')", f"{saved - opened:.4f} s"],
            ["aa.open('pr.nca')", f"{reopened - saved:.4f} s"],
        ]
        print(table(rows, ["five files, in mm and cm", "takes"]))
        values = agg["pr"][:]
        check(np.array_equal(values, again["pr"][:]), "the index gives the same values")
        with netCDF4.Dataset(folder / "pr.nca") as file:
            print(f"\nwhat any reader of CF-1.13 sees:\n  pr: aggregated_data = {file['pr'].aggregated_data!r}")
            print("  uris:", *(str(uri) for uri in file["pr_uris"][:].ravel()))
        check(report.ok, "CF-1.13 expresses all of it")
        moved_folder = folder.rename(Path(name) / "there")
        moved = aa.open(moved_folder / "pr.nca")
        check(np.array_equal(values, moved["pr"][:]), "moved with its data, it still opens")
        longer = moved.append(moved_folder / "months")
        anew = aa.open(moved_folder / "months")
        check(
            longer["pr"].shape == (180, 3, 3) and np.array_equal(longer["pr"][:], anew["pr"][:]),
            "a sixth file appended: the same as opening all six anew",
        )
        (moved_folder / "months" / "pr_2.nc").unlink()
        problems = moved.check().problems
        print("\nproblems:", *(f"  [{p.kind}] {p.message.replace(name, '...')}" for p in problems), sep="\n")
        check([p.kind for p in problems] == ["missing"], "a missing file is found")


def write_compressed(folder: Path, count: int) -> list[Path]:
    """Write files of ten steps on a fine grid, shuffled and deflated, one chunk per step."""
    lats, lons = np.arange(90) * 2 - 89.0, np.arange(180) * 2.0
    paths = []
    for number in range(count):
        paths.append(folder / f"tas_{number:03}.nc")
        with netCDF4.Dataset(paths[-1], "w") as file:
            days = np.arange(10) + 10.0 * number
            for name, values, units in (
                ("time", days, "days since 2001-01-01"),
                ("lat", lats, "degrees_north"),
                ("lon", lons, "degrees_east"),
            ):
                file.createDimension(name, len(values))
                axis = file.createVariable(name, "f8", (name,))
                axis.units = units
                axis[:] = values
            tas = file.createVariable(
                "tas", "f4", ("time", "lat", "lon"), zlib=True, chunksizes=(1, 90, 180), fill_value=-999.0
            )
            tas.units = "K"
            tas[:] = (
                np.round(8 * (280 + np.cos(np.radians(lats))[:, np.newaxis] * np.sin(days[:, np.newaxis, np.newaxis] + lons)))
                / 8
            )
    return paths


def by_loop(paths: list[Path], key: Any) -> np.ndarray:
    """Read the same with a loop over netCDF4-python."""
    result = []
    for path in paths:
        with netCDF4.Dataset(path) as file:
            result.append(np.ma.filled(file["tas"][key], np.nan))
    return np.concatenate(result)


def reduced() -> None:
    """Reduce an array while its files are read."""
    show("Means while the files are read")
    tas = aa.open(HERE / "archive")["tas"]
    monthly, world = tas.mean("time", by="month"), tas.mean(("lat", "lon"), weights="area")
    print(f">>> tas.mean('time', by='month')\n{monthly!r}\n{monthly.attrs['cell_methods']}\n")
    months = tas.coords["time"].datetimes().astype("M8[M]").astype(int) % 12
    values, area = tas[:], np.cos(np.radians(tas.coords["lat"][:]))[:, np.newaxis]
    expected = [np.nanmean(values[months == month], axis=0) for month in range(12)]
    check(np.allclose(monthly[:], expected, rtol=1e-12), "the mean of each month equals NumPy's over its days")
    weights = np.where(np.isnan(values), 0, area)
    expected = np.nansum(values * weights, axis=(1, 2)) / weights.sum(axis=(1, 2))
    check(np.allclose(world[:], expected, rtol=1e-12), "the mean of each day over the sphere equals NumPy's")


def speed() -> None:
    """Measure opening, reopening and reading."""
    show("Fast: from stored bytes to values, without a library in between")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_compressed(folder, 100)
        point = (slice(None), 45, 90)
        seconds: dict[str, float] = {}
        result: dict[str, Any] = {}
        for what, work in (
            ("open 100 files", lambda: aa.open(folder)),
            ("open 100 files, trust='assume'", lambda: aa.open(folder, rules=aa.Rules(trust="assume"))),
            ("save an index, chunk tables included", lambda: result["open 100 files"].save(folder / "tas.nca")),
            ("open the index, read a point's series", lambda: aa.open(folder / "tas.nca")["tas"][point]),
            ("the same series, a loop over netCDF4", lambda: by_loop(paths, point)),
            ("open the index, read everything", lambda: aa.open(folder / "tas.nca")["tas"][...]),
            ("everything, a loop over netCDF4", lambda: by_loop(paths, ...)),
        ):
            started = time.perf_counter()
            result[what] = work()
            seconds[what] = time.perf_counter() - started
        print(table([[what, f"{took:.3f} s"] for what, took in seconds.items()], ["what", "takes, in one run"]))
        series, whole = list(result.values())[3:5], list(result.values())[5:]
        check(np.array_equal(*series) and series[0].shape == (1000,), "the series is the one that netCDF4-python gives")
        check(np.array_equal(*whole) and whole[0].shape == (1000, 90, 180), "all other values are, too")
        trusted = result["open 100 files, trust='assume'"]
        check(
            trusted["tas"].shape == (1000, 90, 180) and trusted.check().ok,
            "verified file by file, every assumption holds",
        )


def fresh_processes() -> None:
    """Read a series in fresh processes, and count what they import."""
    show("Light: a fresh process, from its start to a point's series")
    ours = "import aggarray as aa; values = aa.open(sys.argv[1] + '/tas.nca')['tas'][:, 45, 90]"
    loop = (
        "import glob, netCDF4, numpy; files = sorted(glob.glob(sys.argv[1] + '/*.nc')); "
        "values = numpy.concatenate([netCDF4.Dataset(path)['tas'][:, 45, 90] for path in files])"
    )
    counts = "; print(float(values.sum()), len(sys.modules), *sorted({name.partition('.')[0] for name in sys.modules}))"
    rows, sums, packages = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        write_compressed(Path(folder), 100)
        aa.open(folder).save(Path(folder, "tas.nca"))
        for what, script in (("aggarray, the index", ours), ("netCDF4-python, the files", loop)):
            command = [sys.executable, "-c", f"import sys; {script}{counts}", folder]
            subprocess.run(command, check=True, capture_output=True)  # modules are compiled
            started = time.perf_counter()
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            total, modules, *names = done.stdout.split()
            rows.append([what, f"{time.perf_counter() - started:.3f} s", modules])
            sums.append(float(total))
            packages.append(set(names))
    print(table(rows, ["process", "takes, in one run", "modules"]))
    check(sums[0] == sums[1], "both give the same sum")
    check(
        not packages[0] & {"netCDF4", "h5py", "numcodecs", "cf_units", "zarr"},
        "the process that reads the index imports no other library for files, filters or units than libdeflate",
    )


def extracted() -> None:
    """Extract a part of the archive to one file, rewritten only if needed."""
    show("A part of it as one file")
    tas = aa.open(HERE / "archive")["tas"].sel(lat=slice(-30, 30), time=slice("2001-03", "2001-05"))
    with tempfile.TemporaryDirectory() as folder:
        done = extract(tas, Path(folder, "tropics.nc"))
        print(f">>> extract(tas.sel(lat=slice(-30, 30), time=slice('2001-03', '2001-05')), 'tropics.nc')\n{done.variables}\n")
        with netCDF4.Dataset(done.path) as file:
            same = np.array_equal(np.ma.filled(file["tas"][:], np.nan), tas[:], equal_nan=True)
        check(same and tas.shape == (92, 6, 36), "netCDF4-python reads 92 days of three months that were stored differently")
        again = extract(tas, done.path, exists="update")
        check(again.unchanged, "extracted again, nothing is written: its files have not changed")


def html_page() -> None:
    """Write a report of everything as one HTML page."""
    show("One HTML page")
    path = HERE.parent / "build" / "demo" / "archive.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        write_messy(Path(name), [-45.0, 0.0, 45.0], [0.0, 90.0, 180.0, 270.0])
        agg = aa.open([HERE / "archive", HERE / "tiles", name])
        report.write(report.page(agg, title="Sample data, and a messy folder"), path)
        reasons = [r.reason for r in agg.refusals]
    text = path.read_text(encoding="utf-8")
    print(f"  open {path} in a browser ({len(text) // 1000} kB)\n")
    check(text.count('<section class="array"') == len(agg) == 5, "five arrays, with their partitions drawn")
    unescaped = html.unescape(re.sub(r"</?(?:span|wbr)[^>]*>", "", text))
    check(len(reasons) == 2 and all(reason in unescaped for reason in reasons), "it gives the reasons of two refusals")
    check("steps of time missing" in unescaped and "repeats" in unescaped, "it names the gap and the copy")
    check("default-src 'none'" in text and " src=" not in text, "it needs no network")


def main() -> None:
    """Run all chapters."""
    archive()
    selecting()
    tiles()
    messy()
    foreign()
    index()
    extracted()
    reduced()
    speed()
    fresh_processes()
    distributed()
    collective_reads()
    four_ranks()
    profiles()
    xarray_and_dask()
    memory_views()
    damaged()
    html_page()
    print("\nEverything that was claimed was checked.")


if __name__ == "__main__":
    main()
