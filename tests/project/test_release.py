"""A release builds, its metadata are valid, and its wheel runs the README where nothing else of the project is installed."""

import os
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.heavy

#: Runs the examples of the README; the project's folder comes last, so that the package is that of the wheel.
SCRIPT = """
import os, sys
from pathlib import Path
root, folder = sys.argv[1:]
sys.path.append(root)
import aggarray
assert not Path(aggarray.__file__).is_relative_to(root), aggarray.__file__
from tests.support.pages import run_page
os.chdir(folder)
print(run_page((Path(root) / "README.md").read_text(encoding="utf-8"), "README.md", Path(folder)))
"""


def run(*words: object, cwd: Path) -> str:
    """Return the output of a program, which succeeds, and of which PYTHONPATH changes no import."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, words)], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the source archive, and the wheel built from it."""
    pytest.importorskip("build", reason="no build")
    folder = tmp_path_factory.mktemp("release")
    listed = run("git", "ls-files", cwd=ROOT).split("\n") if (ROOT / ".git").exists() else []
    if not listed:
        pytest.skip("no repository: the files of a release are those under version control")
    for name in listed:
        if name and (ROOT / name).is_file():
            (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "src" / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--outdir", folder, folder / "src", cwd=folder)
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return source, wheel


def test_the_metadata_are_valid(archives: tuple[Path, Path]) -> None:
    pytest.importorskip("twine", reason="no twine")
    run(sys.executable, "-m", "twine", "check", "--strict", *archives, cwd=ROOT)


def test_the_archives_have_what_users_need(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[0]) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    in_git = (ROOT / ".git").exists()  # an unpacked source archive has no list of its files
    tracked = {name for name in run("git", "ls-files", cwd=ROOT).split("\n") if (ROOT / name).is_file()} if in_git else set()
    assert {"tests/conftest.py", "docs/index.md", "paper/paper.md", "CITATION.cff", ".ci/run"} <= names
    assert tracked - names <= {".gitattributes", ".gitignore"}
    assert not [name for name in names if name.startswith(("build/", ".venv")) or name.endswith(".pyc")]
    with zipfile.ZipFile(archives[1]) as wheel:
        own = {name for name in wheel.namelist() if not name.startswith("aggarray-")}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "aggarray").rglob("*") if path.is_file()}
    assert own == {name for name in modules if not name.endswith(".pyc")}


def test_the_wheel_runs_the_readme(archives: tuple[Path, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = next((tmp_path / "venv").glob("bin/python"))
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", archives[1], cwd=tmp_path)
    # Dependencies are those of this environment, without its copy of the package.
    (packages,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    (tmp_path / "readme").mkdir()
    assert int(run(python, "-c", SCRIPT, ROOT, tmp_path / "readme", cwd=tmp_path).split()[-1]) >= 12
