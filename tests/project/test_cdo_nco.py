"""The tables of docs/howto/from-cdo-nco.md: shell and Python agree with each other, and with CDO and NCO where installed."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from click.testing import CliRunner

import aggarray as aa
from aggarray.cli import commands
from sample_data import models
from sample_data.pairs import PAIRS, main
from tests.project.test_peers import Found, outcome, table
from tests.support.examples import heavy
from tests.support.pages import blocks, run_python
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "howto" / "from-cdo-nco.md").read_text(encoding="utf-8")
RUN = "cmip6/ALPHA/historical/{}/Amon/tas/gn"
ROWS = [
    [re.sub("^-$", "", cell.strip().strip("`")) for cell in row]
    for row in re.findall(r"^\| (`[^|]+) \| ([^|]+) \| (`[^|]+`) \|$", PAGE, re.MULTILINE)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cdo")
    models.main(str(path))
    return path


@pytest.fixture(scope="module")
def names(folder: Path) -> dict[str, Any]:
    """Return the names of the page."""
    pytest.importorskip("dask", reason="no dask: the extra 'xarray'")
    result: dict[str, Any] = {}
    with chdir(folder):
        run_python(next(block.text for block in blocks(PAGE) if block.language == "python"), "from-cdo-nco.md", result)
    return result


def by_command(program: str, folder: Path, inputs: str) -> np.ndarray | None:
    """Return what CDO or NCO makes of one file of the run, or of the stations; None where they are not installed."""
    words = program.split("`")[0].split()
    of_nco = words[0].startswith("nc")
    if shutil.which(words[0] if of_nco else "cdo") is None:
        return None
    out = folder / "theirs.nc"
    files = sorted(map(str, folder.glob(f"{inputs}/*.nc")))
    tool = ["ncrcat", "-O"] if of_nco else ["cdo", "-s", "-O", "mergetime"]
    if words[0] not in ("mergetime", "ncrcat"):
        merged = folder / f"merged_{tool[0]}_{inputs.replace('/', '_')}.nc"
        if not merged.exists():
            subprocess.run([*tool, *files, merged], check=True, capture_output=True)
        files = [str(merged)]
    if words[-3:] == ["r1", "r2", "r3"]:
        words, files = words[:-3], []
        for member in ("r1i1p1f1", "r2i1p1f1", "r3i1p1f1"):
            files.append(str(folder / f"merged_{member}.nc"))
            parts = sorted(map(str, folder.glob(f"{RUN.format(member)}/*.nc")))
            subprocess.run([*tool, *parts, files[-1]], check=True, capture_output=True)
    words = [files[0] if word == "IN" else word.replace("lon=10/lat", "lon=10_lat") for word in words]
    command = [words[0], "-O", *words[1:]] if of_nco else ["cdo", "-s", "-O", *words]
    done = subprocess.run([*command, *files, out], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with netCDF4.Dataset(out) as file:
        return np.ma.filled(np.squeeze(file["tas"][:]), np.nan)


def by_shell(options: str, folder: Path, inputs: str) -> np.ndarray:
    """Return what ``aggarray extract`` or ``aggarray reduce`` writes; ``folder``: the current one."""
    out = folder / "ours.nc"
    name = "reduce" if re.search("--(mean|max|std)", options) else "extract"
    done = CliRunner().invoke(commands, [name, inputs, *shlex.split(options), "--overwrite", "-o", str(out)])
    assert done.exit_code == 0, done.stderr
    with netCDF4.Dataset(out) as file:
        return np.ma.filled(np.squeeze(file["tas"][:]), np.nan)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", heavy(ROWS, but=ROWS[::5]), ids=lambda row: row[0])
def test_a_row_of_the_tables(row: list[str], folder: Path, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    command, options, code = row
    monkeypatch.chdir(folder)
    result = eval(code, names)
    values = np.squeeze(np.asarray(result[...] if isinstance(result, aa.MasterArray) else result))
    run = RUN.format("r1i1p1f1")
    if options:
        inputs = "station" if "hourly" in code else "cmip6/ALPHA/historical" if "members" in code else run
        assert np.allclose(by_shell(options, folder, inputs), values, rtol=1e-6, equal_nan=True)
    theirs = by_command(command, folder, "station" if "hourly" in code else run)
    if theirs is None and not options:
        pytest.skip("no CDO or NCO")
    if theirs is None:
        return
    if values.shape != theirs.shape and values.shape == theirs.T.shape:
        theirs = theirs.T  # NCO puts a dimension that it reverses elsewhere
    # CDO bounds cells by great circles, which matters on this coarse grid.
    far = 0.5 if command in ("fldmean", "mermean") else 2e-4
    assert values.shape == theirs.shape and np.allclose(values, theirs, rtol=2e-5, atol=far, equal_nan=True)


def test_the_tables_are_read() -> None:
    assert len(ROWS) >= 40 and sum(bool(options) for _, options, _ in ROWS) >= 27


def joining(tool: str, folder: Path) -> Callable[[Sequence[str]], Iterator[Found]]:
    """Return a function that joins files with ``mergetime`` of CDO or with ``ncrcat``."""
    command = ["cdo", "-s", "-O", "mergetime"] if tool == "mergetime" else ["ncrcat", "-O"]

    def read(paths: Sequence[str]) -> Iterator[Found]:
        subprocess.run([*command, *paths, folder / "out.nc"], check=True, capture_output=True)
        with netCDF4.Dataset(folder / "out.nc") as file:
            time = file["time"]
            days = netCDF4.num2date(time[:], time.units, "standard") - netCDF4.num2date(0, "days since 2001-01-01", "standard")
            yield np.array([day.days for day in days]), file["lon"][:], np.ma.filled(file["tas"][:], np.nan)

    return read


@pytest.mark.parametrize("tool", ["mergetime", "ncrcat"])
def test_pairs(tool: str, tmp_path: Path) -> None:
    program = "cdo" if tool == "mergetime" else tool
    if shutil.which(program) is None:
        pytest.skip(f"no {program}")
    main(tmp_path)
    read = joining(tool, tmp_path)
    found = {name: outcome(name, read, [str(tmp_path / name / f"{letter}.nc") for letter in "ab"]) for name in PAIRS}
    assert found == {name: row[tool] for name, row in table().items()}
