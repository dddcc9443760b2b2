"""Imports point down the layers, without cycles between modules, and heavy libraries stay in their folders.

`LAYERS` is the table of docs/contributing.md. Every import counts, also inside functions and under ``TYPE_CHECKING``. A module
or folder without a layer fails the test.
"""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.paths import ROOT

PACKAGE = "aggarray"

#: Folders from the bottom up. Modules of one folder may import each other, folders of one layer may not.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("constructors", "dataclass", "deprecation", "errors", "garbage", "options", "plugins"),
    ("storage", "codecs", "cf", "memory"),
    ("partition", "maps"),
    ("formats",),
    ("scan",),
    ("read",),
    ("arrays",),
    ("aggregate", "index"),
    ("opening", "output", "reduce"),
    ("interop", "export", "display", "mpi", "layout"),
)
#: Modules above the layers, which no module imports. They and the bottom layer are the only modules outside folders.
ENTRY_POINTS = ("cli", "serve", "dap", "exchange", "report", "xarray_engine", "__main__", "__init__")
LAYER = {name: number for number, names in enumerate((*LAYERS, ENTRY_POINTS)) for name in names}

#: (from, to) of imports upwards inside functions only: methods such as `MasterArray.to_dask` import their implementation.
DEFERRED = {
    ("arrays", "interop"),
    ("arrays", "display"),
    ("arrays", "reduce"),
    ("aggregate", "display"),
    ("opening", "interop"),
    ("opening", "display"),
    ("opening", "export"),
    ("opening", "layout"),
}
#: Imports within a row of modules.
SIDEWAYS = {
    ("cli", "serve"),
    ("layout", "display"),
    ("dataclass", "constructors"),
    ("dataclass", "errors"),
    ("options", "dataclass"),
    ("options", "errors"),
    ("plugins", "errors"),
    ("__main__", "cli"),
}

#: Folders that may import a heavy or optional library; any folder may under ``TYPE_CHECKING``.
HOMES = {
    "aiohttp": ("storage",),
    "awkward": ("interop", "memory"),
    "click": ("cli",),
    "dask": ("interop",),
    "fsspec": ("storage",),
    "icechunk": ("export",),
    "imagecodecs": ("codecs",),
    "matplotlib": ("display",),
    "mpi4py": ("mpi",),
    "pyarrow": ("formats", "export"),
    "rich": ("cli",),
    "starlette": ("serve",),
    "uvicorn": ("serve",),
    "xarray": ("interop", "xarray_engine"),
    "zarr": ("export", "formats", "mpi"),
}


def parts_of(path: Path, root: Path) -> tuple[str, ...]:
    """Return the parts of a module's name within the package: ("formats", "zarr"); ("__init__",) for the package itself."""
    parts = path.relative_to(root).with_suffix("").parts
    return parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts


_WITH_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)


class Place(NamedTuple):
    """A statement or call that may import, and where it stands."""

    node: ast.AST
    in_function: bool
    for_types: bool


@functools.cache
def importing(source: str) -> list[Place]:
    """Return the statements and calls in the source of a module that may import."""
    found: list[Place] = []
    calls = "import_module(" in source or "__import__(" in source

    def visit(statements: Sequence[ast.stmt], in_function: bool, for_types: bool) -> None:
        for node in statements:
            if isinstance(node, ast.Import | ast.ImportFrom):
                found.append(Place(node, in_function, for_types))
            elif calls:  # expressions are searched only where they may import
                parts = [part for part in ast.iter_child_nodes(node) if not isinstance(part, _WITH_STATEMENTS)]
                inner = (inner for part in parts for inner in ast.walk(part) if isinstance(inner, ast.Call))
                found.extend(Place(call, in_function, for_types) for call in inner)
            inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            typed = for_types or (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"))
            visit(getattr(node, "body", ()), inside, typed)
            for more in ("orelse", "finalbody", "handlers", "cases"):
                visit(getattr(node, more, ()), inside, for_types)

    visit(ast.parse(source).body, False, False)
    return found


def imported(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    """Return the absolute dotted names that a statement may import; ``package``: where relative imports start."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = [*package[: len(package) - node.level + 1]] if node.level else []
        start = ".".join([*base, *([node.module] if node.module else [])])
        return [f"{start}.{alias.name}" for alias in node.names]
    called = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
    if isinstance(node, ast.Call) and called in ("import_module", "__import__"):
        return [a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return []


def is_allowed(source: str, target: str, deferred: bool) -> bool:
    """Return whether a folder may import another; ``deferred``: inside a function."""
    if source == target or (source, target) in SIDEWAYS or (deferred and (source, target) in DEFERRED):
        return True
    return LAYER.get(target, len(LAYER)) < LAYER[source] and not (target in ENTRY_POINTS and source not in ("dap", "__init__"))


def faults_of(path: Path, root: Path, folders: set[str]) -> Iterator[str]:
    """Yield the faults of the imports of one module."""
    parts = parts_of(path, root)
    home = parts[0]
    if home not in LAYER:
        yield f"{path.name}: {home!r} has no layer: add it to LAYERS in tests/project/test_layers.py"
        return
    package = (PACKAGE, *(parts if path.name == "__init__.py" and parts != ("__init__",) else parts[:-1]))
    for node, in_function, for_types in importing(path.read_text(encoding="utf-8")):
        for name in imported(node, package):
            where = f"{'/'.join(path.relative_to(root).parts)}:{getattr(node, 'lineno', 0)}"
            library, _, first = name.partition(".")
            first = first.partition(".")[0]
            if library == PACKAGE:
                target = first if first in folders or first in LAYER else "__init__"
                if not is_allowed(home, target, in_function):
                    way = "sideways" if LAYER.get(target) == LAYER[home] else "up"
                    yield f"{where} imports {target}, which points {way}"
            elif library in HOMES and home not in HOMES[library] and not for_types:
                yield f"{where} imports {library}, which belongs in {' or '.join(HOMES[library])}"


def faults(root: Path) -> list[str]:
    """Return the faults of the imports of every module of a package folder."""
    paths = sorted(root.rglob("*.py"))
    folders = {parts_of(path, root)[0] for path in paths}
    return [fault for path in paths for fault in faults_of(path, root, folders)]


def file_imports(root: Path) -> dict[str, set[str]]:
    """Return the modules of the package that each module imports at run time, also in functions."""
    paths = {".".join((PACKAGE, *parts_of(path, root))).removesuffix(".__init__"): path for path in sorted(root.rglob("*.py"))}
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        places = importing(path.read_text(encoding="utf-8"))
        targets = {t for node, _, for_types in places if not for_types for t in imported(node, tuple(package))}
        graph[name] = {t if t in paths else t.rpartition(".")[0] for t in targets} & set(paths) - {name}
    return graph


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules that remain after repeatedly removing those without imports of the others."""
    left = {name: set(targets) for name, targets in graph.items()}
    while free := {name for name, targets in left.items() if not targets}:
        left = {name: targets - free for name, targets in left.items() if name not in free}
    while unused := set(left) - {target for targets in left.values() for target in targets}:
        left = {name: targets for name, targets in left.items() if name not in unused}
    return sorted(left)


def test_imports_point_down() -> None:
    wrong = faults(ROOT / PACKAGE)
    assert not wrong, "\n".join(wrong)


def test_files_import_each_other_in_no_cycle() -> None:
    assert cycles(file_imports(ROOT / PACKAGE)) == []


def test_no_other_top_level_modules() -> None:
    top = {path.stem for path in (ROOT / PACKAGE).glob("*.py")}
    assert top == {*LAYERS[0], *ENTRY_POINTS} - {"cli", "serve"}


@pytest.mark.parametrize(
    ("module", "text", "words"),
    [
        ("maps/base.py", "from aggarray.cf import units", None),
        ("maps/base.py", "from .fields import Entry", None),
        ("formats/zarr.py", "from aggarray.formats.base import Handle\nfrom .base import Format\nfrom . import base", None),
        ("formats/zarr.py", "from .. import errors", None),
        ("formats/zarr.py", "from ..read import fetch", "formats/zarr.py:1 imports read, which points up"),
        ("maps/base.py", "def f():\n    from aggarray import scan", "maps/base.py:2 imports scan, which points up"),
        ("maps/base.py", "import aggarray.scan as s", "maps/base.py:1 imports scan, which points up"),
        (
            "maps/base.py",
            "import importlib\nimportlib.import_module('aggarray.arrays')",
            "maps/base.py:2 imports arrays, which points up",
        ),
        (
            "maps/base.py",
            "with f():\n    if g(__import__('aggarray.arrays')):\n        pass",
            "maps/base.py:2 imports arrays, which points up",
        ),
        ("maps/base.py", "try:\n    pass\nexcept E:\n    import aggarray.scan", "maps/base.py:4 imports scan, which points up"),
        ("maps/base.py", "from aggarray import open", "maps/base.py:1 imports __init__, which points up"),
        ("index/store.py", "from aggarray.aggregate import join", "index/store.py:1 imports aggregate, which points sideways"),
        ("arrays/master.py", "def f():\n    from aggarray.interop import dask", None),
        ("arrays/master.py", "from aggarray.interop import dask", "arrays/master.py:1 imports interop, which points up"),
        ("opening/sources.py", "from aggarray.report import page", "opening/sources.py:1 imports report, which points up"),
        ("formats/zarr.py", "def f():\n    import zarr", None),
        ("formats/__init__.py", "from .base import Format\nfrom ..cf import units", None),
        ("arrays/master.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import xarray", None),
        (
            "arrays/master.py",
            "import xarray.core",
            "imports xarray, which belongs in interop or xarray_engine",
        ),
        ("novel.py", "", "'novel' has no layer"),
    ],
)
def test_the_walk_finds_faults(tmp_path: Path, module: str, text: str, words: str | None) -> None:
    for name in ("__init__.py", "errors.py", "formats/__init__.py", "formats/base.py", module):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text if name == module else "", encoding="utf-8")
    wrong = faults(tmp_path)
    assert wrong == [] if words is None else len(wrong) == 1 and words in wrong[0]


def test_cycles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert cycles(graph) == ["b", "c"] and cycles({"a": {"b"}, "b": set()}) == []


def test_import_loads_nothing_heavy() -> None:
    script = f"import sys; from {PACKAGE} import *; print(*sorted({set(HOMES)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
