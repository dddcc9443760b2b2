"""What do all tests share: where the data lie, and how hard hypothesis tries."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.examples import LIGHT, WHOLE
from tests.support.paths import ROOT

# A job in the background ignores interrupts, and what it starts does so too: tests send some.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Benchmarks are programs, not tests; xarray's own tests have a process of their own.
collect_ignore_glob = ["bench/*", "interop/xarray_suite.py", "mpi/program.py"]

# Examples that touch files take long on a loaded machine, which says nothing about the code.
settings.register_profile("local", deadline=None, max_examples=WHOLE, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.register_profile("light", settings.get_profile("local"), max_examples=LIGHT)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, which is not part of the project: tests that need it skip where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("real data: no folder ../shared/data beside the project")
    return folder


@pytest.fixture(scope="session")
def sample_archive() -> Path:
    """The folder of the sample archive: a year of daily `tas`, one file a month, every file stored differently."""
    return ROOT / "sample_data" / "archive"


@pytest.fixture(scope="session")
def sample_tiles() -> Path:
    """The folder of the sample tiles: ten rectangles that cover one 8 x 7 matrix."""
    return ROOT / "sample_data" / "tiles"


@pytest.fixture(scope="session")
def sample_stations() -> Path:
    """The folder of the sample profiles: ragged arrays, three files contiguous and one indexed."""
    return ROOT / "sample_data" / "stations"
