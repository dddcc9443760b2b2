"""Kept pickles and graphs of an index that is saved again, moved or deleted: right values, or an error that says so."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dask.array", reason="arrays become dask arrays: install the extra 'xarray'")

import aggarray as aa
from tests.support.examples import heavy
from tests.support.netcdf import cube, field, write
from tests.support.paths import ROOT

VALUES = field(range(3), (10, 20, 30), (0, 5))
READ = """
import json, pickle, sys
import numpy as np
result = {}
for path in sys.argv[1:]:
    try:
        item = pickle.load(open(path, "rb"))
        values = item.compute(scheduler="sync") if hasattr(item, "compute") else item[...]
        result[path] = np.asarray(values, "f8").tolist()
    except Exception as error:
        result[path] = f"{type(error).__name__}: {error}"
print(json.dumps(result))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of two archives with other values, and an index of the first."""
    for name, added in (("a", 0), ("b", 1000)):
        for n in range(3):
            made = cube([n])
            tas = (made["tas"][0], made["tas"][1] + added, made["tas"][2])
            write(tmp_path / name / f"{n}.nc", {**made, "tas": tas})
    aa.open(tmp_path / "a").save(tmp_path / "index.nca")
    return tmp_path


def save_b(folder: Path, to: str = "index.nca") -> None:
    aa.open(folder / "b").save(folder / to)


def make_anew(folder: Path) -> None:
    (folder / "index.nca").unlink()
    save_b(folder)


def replace_by_copy(folder: Path) -> None:
    """Put a copy of the index in its place that was saved with other files."""
    save_b(folder, "copy.nca")
    os.replace(folder / "copy.nca", folder / "index.nca")


CHANGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "saved again": (save_b, "IndexFileError: saved again since the array was pickled"),
    "made anew": (make_anew, "IndexFileError: saved again since the array was pickled"),
    "replaced": (replace_by_copy, "IndexFileError: saved again since the array was pickled"),
    "deleted": (lambda folder: (folder / "index.nca").unlink(), "MissingFileError: no such index"),
    "moved": (lambda folder: (folder / "index.nca").rename(folder / "moved.nca"), "MissingFileError: no such index"),
    "another file": (lambda folder: shutil.copy(folder / "b" / "0.nc", folder / "index.nca"), "IndexFileError: "),
}


def read_elsewhere(items: dict[str, Any], folder: Path, **environment: str) -> dict[str, Any]:
    """Return what another process reads of the pickled items, or its errors."""
    paths = {name: str(folder / f"{name}.pickle") for name in items}
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", READ, *paths.values()]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    return {name: result[path] for name, path in paths.items()}


@pytest.mark.parametrize("change", heavy(CHANGES, but=["replaced"]))
def test_an_index_that_changes(change: str, folder: Path) -> None:
    shutil.copy(folder / "index.nca", folder / "copy.nca")
    aa.open(folder / "a").save(folder / "index.nca")
    array = aa.open(folder / "index.nca")["tas"]
    items: dict[str, Any] = {
        "array": array,
        "selection": array.lazy[1:],
        "graph": array.to_dask(),
        "mean": array.to_dask().mean(0),
        "dataset": array.to_xarray(chunks={}),
        "files": aa.open(folder / "a")["tas"],
    }
    expected = {**dict.fromkeys(items, VALUES), "selection": VALUES[1:], "mean": VALUES.mean(0)}
    for name, item in items.items():
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(item))
    action, message = CHANGES[change]
    action(folder)
    for name, item in items.items():  # what this process has opened stays right
        values = item.compute(scheduler="sync") if hasattr(item, "compute") else item[...]
        assert np.allclose(values, expected[name]), name
    for name, read in read_elsewhere(items, folder).items():
        assert np.allclose(read, VALUES) if name == "files" else str(read).startswith(message), (name, read)
    if change == "moved":
        moved = {"AGGARRAY_RELOCATE": f"{folder / 'index.nca'}={folder / 'moved.nca'}"}
        for name, read in read_elsewhere(items, folder, **moved).items():
            assert np.allclose(read, expected[name]), (name, read)
