"""Open files: reused, bounded, reopened after changes, named in errors."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest

import aggarray as aa
import aggarray.read.open_files as files
from aggarray import MasterArray, SubArray, formats
from aggarray.read import OpenFiles, close_files
from aggarray.read.chunk_index import chunk_tables
from aggarray.storage.access import Access


def written(path: Path, values: Any, name: str = "v", form: str = "NETCDF3_CLASSIC", **attrs: Any) -> Path:
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("x", len(values))
        variable = file.createVariable(name, np.asarray(values).dtype, ("x",))
        variable.setncatts(attrs)
        variable[:] = values
    return path


def array(paths: list[Path], **options: Any) -> MasterArray:
    pieces, start = [], 0
    for path in paths:
        piece = SubArray.from_file(path, "v")
        pieces.append(([(start, start + piece.shape[0])], piece))
        start += piece.shape[0]
    return MasterArray.from_subarrays(pieces, dimensions=("x",), **options)


class Counted:
    """Stands for `open_file`: counts openings, and handles still open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self._open = formats.open_file
        monkeypatch.setattr(formats, "open_file", self)

    def __call__(self, path: str) -> Any:
        handle, closed = self._open(path), self.closed
        self.opened.append(path)
        close = handle.close

        class Handle:
            lasting = handle.lasting
            read, mapped = staticmethod(handle.read), staticmethod(handle.mapped)

            def close(self) -> None:
                closed.append(path)
                close()

        return Handle()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    close_files()
    monkeypatch.setattr(files, "_files", OpenFiles())
    return Counted(monkeypatch)


def test_files_stay_open(tmp_path: Path, counted: Counted) -> None:
    a = array([written(tmp_path / f"{i}.nc", [i, i + 1.0]) for i in range(3)])
    for _ in range(3):
        assert a[:].tolist() == [0, 1, 1, 2, 2, 3]
    assert len(counted.opened) == 3 and not counted.closed
    assert a[0:2].tolist() == [0, 1]
    files.close_files()
    assert len(counted.closed) == 3


def test_open_files_are_bounded(tmp_path: Path, counted: Counted) -> None:
    a = array([written(tmp_path / f"{i}.nc", [float(i)]) for i in range(6)])
    with aa.set_options(open_files=2):
        assert a[:].tolist() == [0, 1, 2, 3, 4, 5]
        assert len(counted.opened) - len(counted.closed) <= 2
        a.read(threads=3)
        assert len(counted.opened) - len(counted.closed) <= 2


def test_changed_files_are_opened_anew(tmp_path: Path, counted: Counted) -> None:
    path = written(tmp_path / "a.nc", [1.0, 2.0])
    a = array([path])
    assert a[:].tolist() == [1, 2]
    other = written(tmp_path / "b.nc", [3.0, 4.0])
    os.replace(other, path)
    assert a[:].tolist() == [3, 4]
    assert len(counted.opened) == 2 and len(counted.closed) == 1


def test_a_file_that_goes_is_forgotten(tmp_path: Path, counted: Counted) -> None:
    path = written(tmp_path / "a.nc", [1.0])
    a = array([path])
    a[:]
    path.unlink()
    with pytest.raises(aa.MissingFileError):
        a[:]
    assert len(counted.closed) == 1


def test_threads_share_files(tmp_path: Path, counted: Counted) -> None:
    a = array([written(tmp_path / f"{i}.nc", np.arange(50.0) + i) for i in range(4)])
    expected = np.concatenate([np.arange(50.0) + i for i in range(4)])
    wrong = []

    def work() -> None:
        for _ in range(20):
            if not (a.read(threads=2) == expected).all():
                wrong.append(1)

    with aa.set_options(open_files=2):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    files.close_files()
    assert len(counted.opened) == len(counted.closed)


def message(kind: type[Exception], work: Any, *words: str) -> str:
    with pytest.raises(kind) as caught:
        work()
    text = str(caught.value)
    assert "\n" not in text
    for word in words:
        assert word in text, text
    return text


def test_errors_name_file_and_variable(tmp_path: Path) -> None:
    good, bad = written(tmp_path / "good.nc", [1.0]), written(tmp_path / "bad.nc", [1.0])
    a = array([good, bad])
    bad.write_bytes(b"CDF\x01 nothing of the kind")
    message(aa.FormatError, lambda: a[:], str(bad), "'v'")
    bad.write_bytes(b"")
    message(aa.FormatError, lambda: a[:], str(bad), "'v'", "empty")
    bad.unlink()
    text = message(aa.MissingFileError, lambda: a[:], str(bad), "'v'", "missing='fill'")
    assert text.count(str(bad)) == 1
    with pytest.raises(FileNotFoundError):
        a.read(threads=1)
    written(bad, [1.0], name="other")
    message(aa.NotFoundError, lambda: a[:], str(bad), "'v'", "other")
    message(aa.NotFoundError, lambda: a.read(1, copy=False), str(bad), "'v'", "other")


def test_errors_of_conversion_name_file_and_variable(tmp_path: Path) -> None:
    early = written(tmp_path / "early.nc", [-200000.0], units="days since 2000-01-01", calendar="standard")
    a = array([early], units="days since 2000-01-01", calendar="proleptic_gregorian")
    message(aa.UnitsError, lambda: a[:], str(early), "'v'", "1582-10-15")


def test_missing_files_may_be_filled(tmp_path: Path) -> None:
    from dataclasses import replace

    paths = [written(tmp_path / f"{i}.nc", [float(i)] * 2) for i in range(3)]
    a = replace(array(paths), _access=Access("fill"))
    paths[1].unlink()
    np.testing.assert_array_equal(a[:], [0, 0, np.nan, np.nan, 2, 2])
    assert a.read([5, 2, 0], masked=True).mask.tolist() == [False, True, False]


def test_an_error_ends_the_work(tmp_path: Path, counted: Counted) -> None:
    paths = [written(tmp_path / f"{i}.nc", [float(i)]) for i in range(200)]
    a = array(paths)
    for path in paths[:4]:
        path.unlink()
    with pytest.raises(aa.MissingFileError):
        a.read(threads=2)
    assert len(counted.opened) < 150


def test_forks_leave_the_parents_files_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", [1.0, 2.0], form="NETCDF4")
    a = array([path])
    assert a[:].tolist() == [1, 2]
    lease = files._files
    lease._process = -1  # as after a fork
    chunk_tables.clear()  # so that the file is asked again
    assert a[:].tolist() == [1, 2] and lease._process == os.getpid()


def test_nothing_is_said_at_exit(tmp_path: Path) -> None:
    path = written(tmp_path / "a.nc", [1.0])
    script = f"import aggarray as aa; print(aa.SubArray.from_file({str(path)!r}, 'v').read())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[1.]\n", "")


def test_a_file_that_was_read_is_free_for_others_to_open_and_to_write(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    for value in (1.0, 2.0):
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("x", 3)
            file.createVariable("v", "f8", ("x",))[:] = value
        array = aa.open(path)["v"]
        assert array[:].tolist() == [value] * 3
        with h5py.File(path) as file:
            assert file["v"][0] == value
    with h5py.File(path):
        assert array[:].tolist() == [2.0] * 3
    with netCDF4.Dataset(path, "a") as file:
        file["v"][:] = 3.0
    # The scanned content is gone, and the new content has not been scanned.
    with pytest.raises(aa.FormatError, match=r"changed since it was scanned.*variable 'v' in .*a\.nc"):
        array[:]
    assert aa.open(path)["v"][:].tolist() == [3.0] * 3
