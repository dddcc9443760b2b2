"""Paths that are not writable, of another type, or missing: one clear error, and nothing is modified."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import aggarray as aa
from aggarray.export.extract import extract
from tests.faults.staging import NOBODY, Stage
from tests.faults.works import NEW, OLD, WORKS, Work, make_data, prepared, results, steps
from tests.support.netcdf import write

BY_NAME = [pytest.param(work, id=work.name) for work in WORKS]
#: Works that create their result.
MAKERS = [pytest.param(work, id=work.name) for work in WORKS if work.name not in ("append", "run")]


def everything(folder: Path) -> dict[str, bytes | str]:
    """Return the contents of all files below a folder, and the types of folders and links."""
    result: dict[str, bytes | str] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        result[name] = f"-> {os.readlink(path)}" if path.is_symlink() else "folder" if path.is_dir() else path.read_bytes()
    return result


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder with data that any user can access; children of the stage run unprivileged if this user is root."""
    import tempfile

    made = Path(tempfile.mkdtemp(prefix="aggarray-faults-"))
    made.chmod(0o755)
    make_data(made)
    yield made
    for path in [made, *made.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(made)


def user() -> int:
    """Return an unprivileged user; 0: this one."""
    return NOBODY if os.getuid() == 0 else 0


@pytest.mark.parametrize("work", BY_NAME)
def test_read_only_folder(work: Work, open_folder: Path, stage: Stage) -> None:
    place = prepared(work, open_folder)
    before = everything(place)
    place.chmod(0o555)
    done = work.attempt(stage, open_folder, uid=user())
    assert done.status == 1 and "Permission denied" in done.err and "Traceback" not in done.err
    lines = done.err.splitlines()
    assert all(line.startswith("aggarray: ") and str(place) in line for line in lines)
    assert len(lines) == 1 or work.name == "run"
    place.chmod(0o755)
    assert everything(place) == before
    assert work.attempt(stage, open_folder).status == 0
    assert {steps(path) for path in results(work, place)} == {NEW}


@pytest.mark.parametrize("work", MAKERS)
def test_unreadable_result(work: Work, open_folder: Path, stage: Stage) -> None:
    """An unreadable result is replaced only by works that need not read it."""
    place = prepared(work, open_folder)
    path = results(work, place)[0]
    shutil.chown(place, user() or os.getuid())
    for one in [path, *path.rglob("*")]:
        if one.is_file():
            one.chmod(0)
    done = work.attempt(stage, open_folder, uid=user())
    assert done.status in (0, 1, 2) and "Traceback" not in done.err
    assert not done.status or (done.err.splitlines()[-1].startswith(("aggarray: ", "Error: ")) and path.name in done.err)
    for one in [path, *path.rglob("*")]:
        if one.is_file():
            one.chmod(0o644)
    assert steps(path) == (NEW if done.status == 0 else OLD)


@pytest.mark.parametrize("work", MAKERS)
@pytest.mark.parametrize("case", ["parent", "file", "dangling", "folder", "long", "loop"])
def test_invalid_output_paths(work: Work, case: str, folder: Path, stage: Stage) -> None:
    place = prepared(work, folder)
    path = results(work, place)[0]
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    target = path
    if case == "parent":
        target = place / "no" / "such" / path.name
    elif case == "file":
        (place / "file").write_text("mine")
        target = place / "file" / path.name
    elif case == "dangling":
        path.symlink_to(place / "no" / "such" / path.name)
    elif case == "loop":
        path.symlink_to(path)
    elif case == "long":
        target = place / ("n" * 260 + path.name)
    else:
        path.mkdir()
        (path / "mine").write_text("mine")
    before = everything(place)
    if work.name == "extract-nc" and path.is_symlink():
        assert (work.attempt(stage, folder).status, steps(path)) == (0, NEW)  # a dangling link is replaced
        return
    words = [str(target) if word == str(path) else word for word in work.words(folder)]
    done = stage.attempt(*words, code=work.code)
    assert done.status == 1 and done.said.startswith("aggarray: ") and path.name in done.said, done
    assert everything(place) == before


def test_a_link_to_a_result_is_followed(folder: Path, stage: Stage) -> None:
    for work in (w for w in WORKS if w.name in ("aggregate", "view", "kerchunk-json", "kerchunk-parquet")):
        place = prepared(work, folder)
        path = results(work, place)[0]
        real = place / "real" / path.name
        real.parent.mkdir()
        shutil.move(path, real)
        path.symlink_to(real)
        assert work.attempt(stage, folder).status == 0
        assert path.is_symlink() and steps(real) == NEW


def test_names_of_any_length(folder: Path, tmp_path: Path) -> None:
    """Names of the maximum length in bytes: temporary files next to them have valid names too."""
    agg = aa.open(folder / "data")
    index = tmp_path / ("ü" * 125 + ".nca")
    agg.save(index)
    assert steps(index) == NEW and [p.name for p in tmp_path.iterdir()] == [index.name]


def test_permissions_of_a_result_stay(folder: Path, tmp_path: Path) -> None:
    agg = aa.open(folder / "data")
    for name in ("i.nca", "k.json", "x.nc"):
        path = tmp_path / name
        for mode in (0, 0o640, 0o666, 0o444):
            if mode:
                path.chmod(mode)
            if name == "x.nc":
                extract(agg["tas"], path, exists="overwrite")
            else:
                agg.save(path) if name == "i.nca" else agg.to_kerchunk(path)
            assert not mode or path.stat().st_mode & 0o777 == mode


def test_old_store_is_not_taken_for_new_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped just after the exchange of the old and new store, with the result removed: old chunks are not reused."""
    monkeypatch.setattr("aggarray.output.layout.WHOLE", 200)
    monkeypatch.setattr("aggarray.export.extract.pieces.BLOCK", 10_000)
    monkeypatch.setattr("aggarray.partition.block_shapes._MIN_BYTES", 5_000)
    monkeypatch.setattr("aggarray.partition.block_shapes._MAX_BYTES", 10_000)
    old, new = (np.random.default_rng(n).random((8, 20, 20)) for n in range(2))
    tas = [aa.open(write(tmp_path / f"{n}.nc", {"tas": (("t", "y", "x"), v)}))["tas"] for n, v in enumerate((old, new))]
    out = tmp_path / "x.zarr"
    extract(tas[0], out)

    def stop(path: str) -> None:
        if path == str(tmp_path):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("aggarray.export.extract.target.flush", stop)
        extract(tas[1], out, exists="overwrite")
    np.testing.assert_array_equal(aa.open(out)["tas"][...], new)
    shutil.rmtree(out)
    extract(tas[1], out)
    np.testing.assert_array_equal(aa.open(out)["tas"][...], new)
