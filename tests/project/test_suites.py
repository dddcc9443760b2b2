"""What `make test`, `make test-quick` and continuous integration run."""

import os
import re
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import settings

from tests.faults.promises import promises
from tests.support.examples import LIGHT, WHOLE, examples
from tests.support.paths import ROOT

pytestmark = pytest.mark.quick

MARKERS = ("heavy", "quick")
#: Folders of helpers, without tests.
HELPERS = {"bench", "fixtures", "fuzz", "lowest", "support"}


def pytest_command(*words: str) -> str:
    """Return the pytest command that a target of the Makefile runs, wherever the tests themselves run."""
    command = ["make", "-n", "--no-print-directory", *words]
    outer = {"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "SUITE", "ARGS"}
    variables = {name: value for name, value in os.environ.items() if name not in outer}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].partition("-m pytest")[2]


def is_light(item: pytest.Item) -> bool:
    return item.get_closest_marker("heavy") is None


def matches(only: str, name: str) -> bool:
    """Return whether pytest's -k chooses a test: words with "and" and "or" between them."""
    return any(all(word.lower() in name.lower() for word in part.split(" and ")) for part in only.split(" or "))


def without_light_test(items: Iterable[pytest.Item]) -> list[str]:
    """Return the promises and folders, if all folders are there, of which no test or no light test is there."""
    names = [(item.path.relative_to(ROOT).as_posix(), item.nodeid) for item in items if is_light(item)]
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - HELPERS - {"__pycache__"}
    seen = {path.split("/")[1] for path, _ in names if path.startswith("tests/")}
    lost = [p.id for p in promises() if not any(path == f"tests/{p.test}" and matches(p.only, name) for path, name in names)]
    return [*sorted(folders - seen), *lost]


def test_continuous_integration_runs_the_heavy_tests() -> None:
    last = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1]
    assert last == "exec make --no-print-directory test SUITE=all"
    whole, light = pytest_command("test", "SUITE=all"), pytest_command("test")
    assert "heavy" not in whole and "profile" not in whole
    assert '-m "not heavy" --hypothesis-profile=light' in light
    assert pytest_command("test", "ARGS=-x -k tiles").endswith(" -x -k tiles")
    with pytest.raises(subprocess.CalledProcessError) as error:
        pytest_command("test", "SUITE=heavy")
    assert "SUITE=heavy: give light or all" in error.value.stderr


def test_the_quick_target_names_the_files_with_quick_tests() -> None:
    command = pytest_command("test-quick", "ARGS=-x")
    assert "-m quick --hypothesis-profile=light -x" in command
    find = command.partition("$(")[2].rstrip(")")
    done = subprocess.run(find, shell=True, cwd=ROOT, capture_output=True, text=True, check=True)
    folders = {name.split("/")[1] for name in done.stdout.split()}
    assert folders == {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()} - HELPERS - {"__pycache__"}


def test_every_promise_and_folder_keeps_a_light_test(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    if len({item.path for item in items if item.path.is_relative_to(ROOT / "tests")}) < 200:
        pytest.skip("only some of the tests were collected")
    assert without_light_test(items) == []


def test_markers_are_declared() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    assert [line.partition(":")[0] for line in options["markers"]] == list(MARKERS)
    assert "--strict-markers" in options["addopts"]


def test_numbers_of_examples_follow_the_suite() -> None:
    """A number in `settings` would hold in all suites."""
    assert settings.get_profile("ci").max_examples == WHOLE and settings.get_profile("light").max_examples == LIGHT
    assert examples(WHOLE) == settings.default.max_examples and examples(1) == 1
    fixed = re.compile(r"max_examples=(?!examples\()")
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    assert [path.name for path in tests if path != Path(__file__) and fixed.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("page", ["README.md", "docs/contributing.md"])
def test_the_pages_name_the_suites(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.search(r"^make test +#", text, re.MULTILINE)
    if page.startswith("docs"):
        assert all(word in text for word in ("make test-quick", "make test SUITE=all", *(f"`{name}`" for name in MARKERS)))
