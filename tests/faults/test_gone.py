"""Files that disappear between two accesses: one error that names the file, or a result without it.

The file is removed just before the n-th access by Python, for every n.
"""

import builtins
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aggarray as aa
from aggarray.export.extract import extract
from aggarray.formats import stamp_of
from aggarray.read import close_files
from tests.faults.conftest import Made
from tests.support.examples import heavy_product

_LOOKS = [(os, "stat"), (os, "lstat"), (os, "open"), (os, "listdir"), (os, "scandir"), (builtins, "open")]
#: Upper bound on the number of accesses.
_MOST = 150
SPECIMENS = ["netcdf3-CLASSIC", "netcdf4-deflate", "hdf5-types-earliest", "zarr3-gzip", "kerchunk-both.nc4.json", "index"]


def values(agg: aa.Aggregation) -> None:
    for array in agg:
        array[...]


#: Each takes the path, an output folder, and the aggregation opened before.
WORKS: dict[str, Callable[[Path, Path, Any], object]] = {
    "open": lambda path, out, agg: aa.open(path, processes=1),
    "pattern": lambda path, out, agg: aa.open(f"{path.parent}/*", processes=1),
    "folder": lambda path, out, agg: aa.open(path.parent, processes=1),
    "assume": lambda path, out, agg: values(aa.open(path.parent, rules=aa.Rules(trust="assume"), processes=1)),
    "check": lambda path, out, agg: agg.check(),
    "checksum": lambda path, out, agg: agg.check(checksum=True),
    "read": lambda path, out, agg: values(agg),
    "append": lambda path, out, agg: agg.append([path]),
    "append-folder": lambda path, out, agg: agg.append(path.parent),
    "save": lambda path, out, agg: agg.save(out / "i.nca"),
    "extract": lambda path, out, agg: extract(agg.arrays[0], out / "x.nc", exists="overwrite"),
}
FRESH = ("open", "pattern", "folder", "assume")


class Vanishing:
    """Removes a file before the ``at``-th access; ``looks``: the number of accesses."""

    def __init__(self, victim: Path, at: int, patch: pytest.MonkeyPatch) -> None:
        self.victim, self.at, self.looks = str(victim), at, 0
        for module, name in _LOOKS:
            patch.setattr(module, name, self._wrapped(getattr(module, name)))

    def _wrapped(self, call: Any) -> Any:
        def look(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.victim) and self.looks < self.at:
                self.looks += 1
                if self.looks == self.at:
                    shutil.rmtree(self.victim) if os.path.isdir(self.victim) else os.unlink(self.victim)
            return call(path, *arguments, **options)

        return look


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "work"), heavy_product(SPECIMENS, list(WORKS)))
def test_file_removed_between_accesses(name: str, work: str, made: Made, tmp_path: Path) -> None:
    source = Path(made(name))
    for at in range(1, _MOST):
        place, out = tmp_path / f"{at}" / "in", tmp_path / f"{at}" / "out"
        shutil.copytree(source.parent, place)
        out.mkdir()
        close_files()
        agg = None if work in FRESH else aa.open(place / source.name, processes=1)
        with pytest.MonkeyPatch.context() as patch:
            vanishing = Vanishing(place / source.name, at, patch)
            try:
                WORKS[work](place / source.name, out, agg)
            except aa.AggarrayError as error:
                assert "\n" not in str(error)
        shutil.rmtree(tmp_path / f"{at}")
        if vanishing.looks < at:
            return
    raise AssertionError("more looks than were tried")


def test_identity_of_a_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path / "no", tmp_path / "file" / "no"):
        (tmp_path / "file").touch()
        with pytest.raises(aa.MissingFileError, match="no such file or folder"):
            stamp_of(str(path))
