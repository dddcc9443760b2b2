"""Works that write results, and checks whether a result is the old one, the new one, or neither.

Each `Work` replaces a result made of one file by one of three files: `steps` returns the number of time steps of a result.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import aggarray as aa
from aggarray.display.report import page
from aggarray.display.report import write as write_page
from aggarray.export.extract import extract
from tests.faults.staging import Outcome, Stage
from tests.support.netcdf import cube, field, write

OLD, NEW = 1, 3
_KERCHUNK = """
import sys
import aggarray as aa
try:
    aa.open(words[0]).to_kerchunk(words[1])
except aa.IndexFileError as error:
    sys.exit(print("aggarray:", error, file=sys.stderr) or 1)
except KeyboardInterrupt:
    sys.exit(print("aggarray: interrupted", file=sys.stderr) or 130)
"""


@dataclass(frozen=True, slots=True)
class Work:
    """A command line, or code; ``data`` and ``out`` in it are replaced by the folder of files and the result."""

    name: str
    result: str
    line: tuple[str, ...]
    code: str | None = None

    def words(self, folder: Path) -> list[str]:
        """Return the arguments for a folder made by `prepared`."""
        places = {"data": str(folder / "data"), "out": str(folder / "place" / self.result)}
        return [places.get(word, word) for word in self.line]

    def attempt(self, stage: Stage, folder: Path, **how: object) -> Outcome:
        """Run the work once with a disturbance."""
        return stage.attempt(*self.words(folder), code=self.code, below=folder / "place", **how)


WORKS = (
    Work("aggregate", "i.nca", ("aggregate", "data", "-o", "out")),
    Work("append", "i.nca", ("append", "out", "data")),
    Work("extract-nc", "x.nc", ("extract", "data", "-o", "out", "--overwrite")),
    Work("extract-zarr", "x.zarr", ("extract", "data", "-o", "out", "--overwrite")),
    Work("view", "p.html", ("view", "data", "-o", "out", "--title", "new")),
    Work("kerchunk-json", "k.json", ("data", "out"), _KERCHUNK),
    Work("kerchunk-parquet", "k.parq", ("data", "out"), _KERCHUNK),
    Work("run", "job.toml", ("run", "out")),
)
_JOB = """
log = "log"
[input]
source = "../data"
[index]
path = "i.nca"
[[extract]]
path = "x.nc"
[[page]]
path = "p.html"
title = "new"
"""


def make_data(folder: Path) -> None:
    """Write the input files of all works."""
    for t in range(NEW):
        write(folder / "data" / f"{t}.nc", cube([t]))


def prepared(work: Work, folder: Path) -> Path:
    """Recreate the folder of the result of a work, with the old result in it, and return it."""
    place = folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    old = aa.open(folder / "data" / "0.nc")
    names = ("i.nca", "x.nc", "p.html") if work.name == "run" else (work.result,)
    for name in names:
        made = folder / "old" / name
        made.parent.mkdir(exist_ok=True)
        if not made.exists():
            _make(old, made)
        shutil.copytree(made, place / name) if made.is_dir() else shutil.copy(made, place / name)
    if work.name == "run":
        (place / "job.toml").write_text(_JOB)
    return place


def _make(old: aa.Aggregation, path: Path) -> None:
    if path.suffix == ".nca":
        old.save(path, relative=False)
    elif path.suffix in (".nc", ".zarr"):
        extract(old["tas"], path)
    elif path.suffix == ".html":
        write_page(page(old, "old"), path)
    else:
        old.to_kerchunk(path)


def steps(path: Path) -> int:
    """Read a result and return its number of time steps; 0 if there is none."""
    if not path.exists():
        return 0
    if path.suffix == ".html":
        text = path.read_text()
        assert text.endswith("</html>\n")
        return NEW if "<title>new</title>" in text else OLD
    tas = aa.open(path)["tas"]
    found = tas[...]
    np.testing.assert_array_equal(found, field(*(tas.coords[name][...] for name in ("time", "lat", "lon"))))
    return len(found)


def results(work: Work, place: Path) -> list[Path]:
    """Return the paths that a work writes."""
    return [place / n for n in ("i.nca", "x.nc", "p.html")] if work.name == "run" else [place / work.result]


def rubbish(work: Work, place: Path, *more: str) -> list[str]:
    """Return the names in the folder that are not results; ``more``: permitted names or prefixes."""
    known = {p.name for p in results(work, place)} | {"job.toml", "log"}
    return [p.name for p in place.iterdir() if p.name not in known and not p.name.startswith(more or ("\0",))]


def moments(count: int, most: int) -> Sequence[int]:
    """Return at most ``most`` numbers from 1 to ``count``, the first and last included."""
    return sorted({1 + round(n * (count - 1) / max(most - 1, 1)) for n in range(most)}) if count else []
