"""xarray's own tests of backends, run in a separate process.

Their marks and warnings do not apply here.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("xarray", reason="the engine needs xarray: install the extra 'xarray'")

import xarray

from tests.support.paths import ROOT


@pytest.mark.heavy
def test_xarray_suite_of_backends() -> None:
    if not (Path(xarray.__file__).parent / "tests" / "test_backends.py").is_file():
        pytest.skip("this xarray comes without its tests")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "/dev/null",
        "--rootdir",
        str(ROOT),
        "-q",
        "-W",
        "ignore",
        "-p",
        "no:cacheprovider",
        "--noconftest",
    ]
    command.append(str(ROOT / "tests" / "interop/xarray_suite.py"))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    counted = re.search(r"(\d+) passed", done.stdout)
    assert counted and int(counted[1]) >= 20
