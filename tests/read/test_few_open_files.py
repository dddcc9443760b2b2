"""Opening, reading, saving, appending and checking with few descriptors."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.examples import heavy
from tests.support.netcdf import cube, write
from tests.support.paths import ROOT

COUNT = 3000

SCRIPT = """
import resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
import numpy as np
import aggarray as aa

folder, index, trust, count = *sys.argv[1:4], int(sys.argv[4])
agg = aa.open(f"{folder}/*_[0-2]*.nc", rules=aa.Rules(trust=trust))
expected = np.arange(count) * 100.0 + 10
assert np.array_equal(agg["tas"][:, 0, 0], expected), agg
assert agg.check().ok
agg.save(index)
agg = agg.append(f"{folder}/*.nc")
assert agg["tas"].shape[0] == count + 5
assert agg.check().ok
agg.save(index)
again = aa.open(index)
assert np.array_equal(again["tas"][:count, 0, 0], expected)
print("done")
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    first = Path(write(folder / "first.nc", cube([0.0], [10.0], [0.0]), format="NETCDF3_CLASSIC"))
    header = first.read_bytes()
    first.unlink()
    for n in [*range(COUNT), *range(9000, 9005)]:
        write_step(folder / f"tas_{n:04}.nc", header, n if n < COUNT else COUNT + n - 9000)
    return folder


def write_step(path: Path, header: bytes, step: int) -> None:
    """Write a file of one step: the same header, with the time and the value of that step."""
    import netCDF4
    import numpy as np

    path.write_bytes(header)
    with netCDF4.Dataset(path, "a") as file:
        file["time"][:] = step
        file["tas"][:] = np.float32(step * 100 + 10)


@pytest.mark.parametrize("trust", heavy(["verify", "assume"], but=["verify"]))
def test_three_thousand_files_with_64_descriptors(archive: Path, tmp_path: Path, trust: str) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, str(tmp_path / "script.py"), str(archive), str(tmp_path / "index.nc"), trust, str(COUNT)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == "done\n", done.stderr[-2000:]
