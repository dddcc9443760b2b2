"""What do the tests of faults share: a stage and the files that works read there; the files that are damaged, made once."""

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
    """A process that carries out works, disturbed."""
    with staged() as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three files in ``data``, of one step of time each."""
    made = tmp_path_factory.mktemp("works")
    make_data(made)
    return made


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return the path of a specimen by its name; it is made when it is first asked for, and nobody changes it."""
    known: dict[str, str] = {}

    def find(name: str) -> str:
        if name not in known:
            with warnings.catch_warnings():
                # Zarr says that metadata consolidated in version 3 is not specified.
                warnings.simplefilter("ignore")
                known[name] = SPECIMENS[name](tmp_path_factory.mktemp("specimen"))
        return known[name]

    return find


def matching(*words: str) -> list[str]:
    """Return the names of the specimens that begin with one of some words."""
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
    """The paths of the specimens of one kind."""
    return [made(name) for name in GROUPS[request.param]]
