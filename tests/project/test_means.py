"""The table of docs/howto/means.md: aggarray, xarray and CDO, where installed, agree."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aggarray as aa
from sample_data import models
from tests.project.test_cdo_nco import RUN, by_command
from tests.support.examples import heavy
from tests.support.pages import blocks, run_command, run_python
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "howto" / "means.md").read_text(encoding="utf-8")
ROWS = [list(row) for row in re.findall(r"^\| `([^|]+)` \| `([^|]+)` \| `([^|]+)` \|$", PAGE, re.MULTILINE)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("means")
    models.main(str(path))
    return path


@pytest.fixture(scope="module")
def names(folder: Path) -> dict[str, Any]:
    """Return the names of the page."""
    pytest.importorskip("xarray", reason="no xarray: the extra 'xarray'")
    result: dict[str, Any] = {}
    before = Path.cwd()
    os.chdir(folder)
    for block in blocks(PAGE):
        if block.language == "python":
            run_python(block.text, "means.md", result)
        elif "aggarray reduce" in block.text:
            run_command(block.text.strip(), "means.md", folder)
    os.chdir(before)
    return result


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", heavy(ROWS, but=ROWS[::5]), ids=lambda row: row[0])
def test_a_row_of_the_table(row: list[str], folder: Path, names: dict[str, Any]) -> None:
    command, in_xarray, code = row
    result = eval(code, names)
    assert isinstance(result, aa.MasterArray)
    expected = eval(in_xarray, {**names, **{k: names[k].astype("f8") for k in "xhm"}})
    order = [d if d in expected.dims else next(e for e in expected.dims if e not in result.dims) for d in result.dims]
    near = {"f4": 1e-6, "f8": 1e-12}[result.dtype.str[1:]]
    np.testing.assert_allclose(result[...], expected.transpose(*order).values, rtol=near, atol=near)
    theirs = by_command(command, folder, "station" if "hourly" in code else RUN.format("r1i1p1f1"))
    if theirs is None:
        return
    # CDO bounds cells by great circles, which matters on this coarse grid, and takes percentiles from 101 bins.
    far = 0.5 if command.split(",")[0] in ("fldmean", "mermean", "timpctl") else 2e-4
    assert theirs.shape == result.shape and np.allclose(result[...], theirs, rtol=2e-5, atol=far)


def test_the_table_is_read() -> None:
    assert len(ROWS) >= 27
