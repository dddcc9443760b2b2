"""The demonstration runs and checks what it claims, with the extras and without them."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement

from tests.project.test_project import project
from tests.support.paths import ROOT

#: Runs the demonstration where the packages named by the arguments cannot be imported.
WITHOUT = """
import runpy, sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    names = frozenset(sys.argv[1:])

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    def invalidate_caches(self):
        pass

sys.meta_path.insert(0, Blocked())
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in Blocked.names else find(name, package)
sys.argv[1:] = []
runpy.run_module("sample_data.demo", run_name="__main__")
"""


def run(*command: str) -> str:
    """Run a command in the folder of the project; return what it prints."""
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("checked:") >= 10 and "WRONG" not in done.stdout
    assert done.stdout.rstrip().endswith("Everything that was claimed was checked.")
    return done.stdout


def installed_alone() -> set[str]:
    """Return the distributions that ``pip install .`` installs."""
    dependencies = project()["dependencies"]
    assert isinstance(dependencies, list)
    result: set[str] = set()
    pending = [Requirement(text) for text in dependencies]
    while pending:
        requirement = pending.pop()
        name = requirement.name.lower().replace("_", "-")
        if name in result or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        result.add(name)
        try:
            pending += [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue
    return result


@pytest.mark.heavy
def test_the_demo_checks_every_claim() -> None:
    run("-m", "sample_data.demo")


@pytest.mark.heavy
def test_the_demo_runs_without_extras() -> None:
    present = installed_alone() | {"pip", "setuptools", "aggarray"}
    blocked = {
        name
        for name, homes in packages_distributions().items()
        if not {home.lower().replace("_", "-") for home in homes} & present and name not in sys.stdlib_module_names
    }
    assert {"xarray", "dask", "pandas", "mpi4py", "matplotlib"} & blocked and not {"numpy", "zarr", "aggarray"} & blocked
    out = run("-c", WITHOUT, *sorted(blocked))
    assert "left out: xarray is not installed; " in out and "left out: mpi4py is not installed; " in out
