"""Fixtures of the fault tests: a stage for disturbed work, its input files, and specimens made once."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults import rarities  # noqa: F401 - enters specimens
from tests.faults.specimens import SPECIMENS
from tests.faults.staging import Stage, staged
from tests.faults.works import make_data

Made = Callable[[str], str]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """A process that runs work with a disturbance."""
    with staged() as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three files in ``data``, one time step each."""
    made = tmp_path_factory.mktemp("works")
    make_data(made)
    return made


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A function that returns the path of a specimen, made on first use; tests do not modify specimens."""
    known: dict[str, str] = {}

    def find(name: str) -> str:
        if name not in known:
            with warnings.catch_warnings():
                # Zarr warns that consolidated metadata in version 3 is not specified.
                warnings.simplefilter("ignore")
                known[name] = SPECIMENS[name](tmp_path_factory.mktemp("specimen"))
        return known[name]

    return find


def matching(*words: str) -> list[str]:
    """Return the names of the specimens with one of the prefixes."""
    return [name for name in SPECIMENS if name.startswith(words)]


GROUPS: dict[str, list[str]] = {
    "netcdf3": matching("netcdf3"),
    "netcdf4": matching("netcdf4"),
    "hdf5-earliest": [n for n in matching("hdf5") if "latest" not in n],
    "hdf5-latest": [n for n in matching("hdf5") if "latest" in n],
    "zarr2": matching("zarr2"),
    "zarr3": matching("zarr3"),
    "references": matching("kerchunk"),
    "indexes": matching("index", "foreign"),
}


@pytest.fixture(params=GROUPS, ids=str)
def group(request: pytest.FixtureRequest, made: Made) -> list[str]:
    """The paths of the specimens of one group."""
    return [made(name) for name in GROUPS[request.param]]
