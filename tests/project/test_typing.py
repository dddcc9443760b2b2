"""Type checkers see the public names and types, as a user's program needs them: ``typing/program.py``."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PROGRAM = Path(__file__).parent / "typing" / "program.py"
MODULES = ("aggarray", "aggarray.dap", "aggarray.memory", "aggarray.mpi")


def imported_for_checkers(module: str) -> set[str]:
    """Return the names that a module imports for type checkers alone."""
    path = ROOT.joinpath(*module.split("."))
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    statements = [node for block in blocks for node in block.body]
    return {alias.name for node in statements if isinstance(node, ast.ImportFrom) for alias in node.names}


@pytest.mark.parametrize("module", MODULES)
def test_checkers_see_the_names_that_are_imported_on_first_use(module: str) -> None:
    # Of a fresh process: none of the names has been used.
    script = f"import {module} as m; print(*(set(m.__all__) - set(vars(m))))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == imported_for_checkers(module)


def test_the_program_uses_every_public_name() -> None:
    used = {
        ast.unparse(node)
        for node in ast.walk(ast.parse(PROGRAM.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
    }
    for module in (*MODULES, "aggarray.exchange", "aggarray.report", "aggarray.serve"):
        short = "aa" if module == "aggarray" else module.rpartition(".")[2]
        names = {f"{short}.{name}" for name in importlib.import_module(module).__all__}
        assert names - used == set()


@pytest.mark.heavy
def test_mypy_accepts_the_program(tmp_path: Path) -> None:
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\n[mypy-aggarray.*]\nfollow_imports = silent\n")
    words = ["--config-file", str(config), "--cache-dir", str(ROOT / ".mypy_cache"), str(PROGRAM)]
    done = subprocess.run([sys.executable, "-m", "mypy", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.heavy
def test_pyright_accepts_the_program(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright", reason="no basedpyright")
    settings = {"typeCheckingMode": "strict", "reportMissingTypeStubs": False, "enableTypeIgnoreComments": False}
    settings |= {"reportUnnecessaryTypeIgnoreComment": True, "include": [str(PROGRAM)], "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    words = ["-m", "basedpyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "0 errors" in done.stdout, done.stdout
