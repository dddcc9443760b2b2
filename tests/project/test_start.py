"""Modules that a fresh process imports up to its first value.

``start_modules.json`` lists those of aggarray, by what the process does. A change that adds one fails here. If it is needed,
write the list again with ``python -m tests.project.test_start``.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import aggarray as aa
from tests.bench.archives import paths_in, write_archive
from tests.bench.indexing import write_foreign
from tests.support.starting import besides_data, modules_of, opens_of, ours, run_script

LIST = Path(__file__).with_name("start_modules.json")

_VALUES = "import sys, aggarray as aa; print(aa.open(sys.argv[1])['tas'][:, 1, 2].sum())"
_COMMAND = "import sys; sys.argv[:] = ['aggarray', %r, sys.argv[1]]; from aggarray.cli import main; main()"
_APPEND = _COMMAND.replace("sys.argv[1]]", "sys.argv[1], sys.argv[1].replace('part.nca', 'tas_day_00002.nc')]") % "append"
#: The script of each path, and the file that it opens.
PATHS = {
    "index": (_VALUES, "index.nca"),
    "file": (_VALUES, "tas_day_00000.nc"),
    "zarr": (_VALUES, "store.zarr"),
    "foreign": ("import sys, aggarray as aa; aa.open(sys.argv[1])", "foreign.nc"),
    "files": ("import sys, aggarray as aa; print(repr(aa.open(sys.argv[1])['tas']))", "tas_*.nc"),
    "info": (_COMMAND % "info", "index.nca"),
    "check": (_COMMAND % "check", "index.nca"),
    "append": (_APPEND, "part.nca"),
}
#: Packages of others that a path may import besides numpy.
OTHERS = {
    "index": {"deflate"},
    "file": {"deflate"},
    "zarr": set(),
    "foreign": set(),
    "files": {"deflate"},
    "info": {"deflate", "click", "cftime"},
    "check": {"deflate", "click", "cftime"},
    "append": {"deflate", "click", "netCDF4", "cftime", "certifi", "packaging"},
}
#: Paths that need masked arrays, for the times of arrays and for netCDF4.
MASKED = {"info", "check", "append"}
#: Paths that open data, and modules of the standard library that they do not import: with their imports these take 1.5 ms.
LIGHT = {"index", "file", "zarr", "foreign"}
DONE_WITHOUT = {"copy", "dataclasses", "resource", "threading"}
#: Most modules of aggarray, most in all, and most files that Python opens beside the data.
MOST = {"index": (60, 220, 250)}


def make(folder: Path) -> None:
    """Write the files that the paths open."""
    import zarr

    write_archive(folder, {"files": 3, "steps": 10, "lat": 6, "lon": 9}, deflated=True)
    aa.open(paths_in(folder)).save(folder / "index.nca")
    aa.open(paths_in(folder)[:2]).save(folder / "part.nca")
    write_foreign(folder / "index.nca", folder / "foreign.nc")
    store = zarr.open_group(folder / "store.zarr", mode="w", zarr_format=2)
    array = store.create_array("tas", shape=(4, 3, 5), chunks=(2, 3, 5), dtype="f4")
    array[:] = np.ones((4, 3, 5), "f4")
    array.attrs["_ARRAY_DIMENSIONS"] = ["time", "lat", "lon"]


def others(modules: set[str]) -> set[str]:
    """Return the packages that are neither aggarray nor of the standard library."""
    known = {*sys.stdlib_module_names, "aggarray", "numpy", "cython_runtime"}
    return {name for name in (m.partition(".")[0] for m in modules) if name not in known and not name.startswith("_")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("start")
    make(path)
    return path


@pytest.mark.parametrize("path", PATHS)
def test_no_module_is_added(path: str, folder: Path) -> None:
    script, source = PATHS[path]
    modules = modules_of(script, str(folder / source))
    added = ours(modules) - set(json.loads(LIST.read_text(encoding="utf-8"))[path])
    assert not added, f"imported now, too: {', '.join(sorted(added))}"
    assert others(modules) <= OTHERS[path]
    assert "numpy.ma" not in modules or path in MASKED
    assert path not in LIGHT or DONE_WITHOUT & modules <= modules_of("import numpy")
    if path in MOST:
        most_ours, most, most_files = MOST[path]
        assert len(ours(modules)) <= most_ours and len(modules) <= most
        opened = opens_of(script, str(folder / source))
        assert len(besides_data(opened, lambda name: name.startswith(str(folder)))) <= most_files


def test_no_garbage_is_collected_while_modules_are_imported(folder: Path) -> None:
    counted = "import gc, sys; counts = []; gc.callbacks.append(lambda phase, info: counts.append(phase)); "
    shown = "; print(len(counts)); "
    script = f"{counted}import aggarray as aa{shown}aa.open{shown}aa.open(sys.argv[1]){shown}"
    before, imported, opened = map(int, run_script(script, str(folder / "tas_day_00000.nc")).split())
    # There are two calls for each collection. Without pauses, there are forty collections, and ten in the first `aa.open`.
    assert imported - before < 8 and opened - imported < 8


def write_list(show: Callable[[str], None]) -> None:
    """Write the lists of the present modules."""
    with TemporaryDirectory() as name:
        make(Path(name))
        found = {path: sorted(ours(modules_of(script, f"{name}/{source}"))) for path, (script, source) in PATHS.items()}
    LIST.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    show(", ".join(f"{path} {len(modules)}" for path, modules in found.items()))


if __name__ == "__main__":
    write_list(print)
