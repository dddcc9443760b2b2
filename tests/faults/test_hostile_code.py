"""No content of a file is ever executed: the source contains no pickles, eval, YAML or formats from files."""

import ast
from pathlib import Path

import pytest

from aggarray.cli import main
from tests.support.paths import ROOT

SOURCES = sorted((ROOT / "aggarray").rglob("*.py"))

#: Modules that unpickle data exchanged between processes of one program, never data from a file.
PICKLES = {
    *(
        "scan/workers.py",
        "scan/pickling.py",
        "storage/credentials.py",
        "arrays/pickling.py",
        "formats/hdf5/isolated.py",
        "formats/hdf5/isolated_process.py",
    ),
    *(
        "mpi/calls.py",
        "mpi/transport/base.py",
        "mpi/transport/agreement.py",
        "mpi/transport/trees.py",
        "mpi/pickling.py",
        "mpi/unpickling.py",
        "mpi/reading.py",
    ),
}
#: Functions that execute text or bytes, or let a library do so.
FORBIDDEN = {"eval", "exec", "compile", "__import__", "execfile", "system", "popen", "literal_eval"}
#: Modules that compile the constructors of classes of this package, from the names of their fields alone.
CLASS_CODE = {"constructors.py"}
MODULES = {"yaml", "marshal", "shelve", "dill", "cloudpickle", "jinja2"}


def calls(tree: ast.AST) -> list[tuple[str, str, ast.Call]]:
    """Return (owner of the attribute, name, call) of all calls."""
    result = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute):
                result.append((ast.unparse(function.value), function.attr, node))
            elif isinstance(function, ast.Name):
                result.append(("", function.id, node))
    return result


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_content_is_never_executed(path: Path) -> None:
    tree = ast.parse(path.read_text())
    name = str(path.relative_to(ROOT / "aggarray"))
    for owner, called, call in calls(tree):
        assert called not in FORBIDDEN or (owner, called) == ("re", "compile") or name in CLASS_CODE, ast.unparse(call)
        assert not any(k.arg == "allow_pickle" for k in call.keywords), ast.unparse(call)
        assert not any(k.arg == "shell" for k in call.keywords), ast.unparse(call)
        # A format string from a file could access attributes of objects.
        is_format = called in ("format", "format_map") and owner not in ("", "click")
        assert not is_format or owner.startswith(("'", '"')), ast.unparse(call)
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imported |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert not {one.partition(".")[0] for one in imported} & MODULES
    assert "pickle" not in imported or name in PICKLES


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000 + "]" * 100_000,
        "a = " + "{a = " * 5_000 + "1" + "}" * 5_000,
        ".".join("a" * 3_000) + " = 1",
        '[input]\nsource = "$(touch mark)"\n[index]\npath = "`touch mark`/x.nca"\n',
    ],
    ids=["lists", "tables", "keys", "commands"],
)
def test_jobs_are_data(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(text)
    with pytest.raises(SystemExit) as stop:
        main(["run", "job.toml"])
    err = capsys.readouterr().err
    assert stop.value.code in (1, 2) and "Traceback" not in err and len(err) < 2000 and not Path("mark").exists()


def test_nested_storage_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["info", str(tmp_path / "x.nc"), "--storage", "a=" + "[" * 100_000])
    assert "no such file" in capsys.readouterr().err
