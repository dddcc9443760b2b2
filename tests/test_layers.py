"""Do imports point down the layers only, and do heavy libraries stay in their adapters?

`LAYERS` is the table of the design. Every import statement of every module counts, inside functions and under
``TYPE_CHECKING`` too. The first import that points up or sideways fails the test, as does a module without a layer.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "aggarray"

#: Layer by layer, from the bottom. A name stands for the module, or for the whole package of that name, whose modules may
#: import each other. The last two layers only hand names on.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("options", "frozen", "assumed", "plugins", "ranges", "selection", "lru_cache", "stored_sizes"),
    ("remote",),
    ("units", "grid", "memory", "codecs", "source", "encoding", "labels", "access"),
    ("table",),
    ("plan", "conform", "maps"),
    ("formats", "exchange", "tiling"),
    ("roles",),
    ("alike", "wire"),
    ("helpers",),
    ("settle", "scan", "_scan"),
    ("read", "transport", "trust"),
    ("local",),
    ("adapters",),
    ("master",),
    ("aggregate", "indexes"),
    ("api",),
    ("mpi", "xarray_engine", "facts"),
    ("report",),
    ("cli",),
    ("dap", "__main__"),
    ("__init__",),
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}

#: The modules or packages that may import a heavy or optional library; under ``TYPE_CHECKING`` anyone may.
HOMES = {
    "aiohttp": ("remote",),
    "awkward": ("adapters", "memory"),
    "click": ("cli",),
    "dask": ("adapters",),
    "fsspec": ("remote",),
    "imagecodecs": ("codecs",),
    "matplotlib": ("adapters", "report"),
    "mpi4py": ("mpi", "transport"),
    "pyarrow": ("formats", "indexes"),
    "rich": ("cli",),
    "xarray": ("adapters", "xarray_engine"),
    "zarr": ("formats", "mpi"),
}


def parts_of(path: Path, root: Path) -> tuple[str, ...]:
    """Return a module's name within the package, in parts: ("formats", "zarr"); ("__init__",) for the package itself."""
    parts = path.relative_to(root).with_suffix("").parts
    return parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts


def guarded(tree: ast.AST) -> set[ast.AST]:
    """Return every node under ``if TYPE_CHECKING``."""
    tests = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test).endswith("TYPE_CHECKING")]
    return {inner for test in tests for statement in test.body for inner in ast.walk(statement)}


def imported(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    """Return the absolute dotted names that a statement may import; ``package``: where relative imports start."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = [*package[: len(package) - node.level + 1]] if node.level else []
        start = ".".join([*base, *([node.module] if node.module else [])])
        return [f"{start}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__"):
        return [a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return []


def target(name: str, modules: set[str]) -> str:
    """Return the module or package of aggarray that an absolute name belongs to; the package itself is ``__init__``."""
    first = name.split(".")[1] if "." in name else ""
    return first if first in modules or first in LAYER else "__init__"


def faults_of(path: Path, root: Path, modules: set[str]) -> Iterator[str]:
    """Yield what is wrong with the imports of one module."""
    parts = parts_of(path, root)
    home = parts[0]
    if home not in LAYER:
        yield f"{path.name}: {home!r} has no layer: add it to LAYERS in tests/test_layers.py"
        return
    package = (PACKAGE, *(parts if path.name == "__init__.py" and parts != ("__init__",) else parts[:-1]))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = guarded(tree)
    for node in ast.walk(tree):
        for name in imported(node, package):
            where = f"{'/'.join(path.relative_to(root).parts)}:{getattr(node, 'lineno', 0)}"
            library = name.split(".")[0]
            if library == PACKAGE:
                found = target(name, modules)
                if found != home and LAYER.get(found, len(LAYERS)) >= LAYER[home]:
                    way = "sideways" if LAYER.get(found) == LAYER[home] else "up"
                    yield f"{where} imports {found}, which points {way}"
            elif library in HOMES and home not in HOMES[library] and node not in typing_only:
                yield f"{where} imports {library}, which belongs in {' or '.join(HOMES[library])}"


def faults(root: Path) -> list[str]:
    """Return what is wrong with the imports of every module under a package folder."""
    paths = sorted(root.rglob("*.py"))
    modules = {parts_of(path, root)[0] for path in paths}
    return [fault for path in paths for fault in faults_of(path, root, modules)]


def test_imports_point_down() -> None:
    found = faults(ROOT / PACKAGE)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "text", "words"),
    [
        ("table.py", "from aggarray.units import conversion", None),
        ("table.py", "from .units import conversion", None),
        ("formats/hdf5.py", "from aggarray.formats.base import Handle\nfrom .base import Format\nfrom . import base", None),
        ("formats/hdf5.py", "from .. import errors", None),
        ("formats/hdf5.py", "from ..read import fetch", "formats/hdf5.py:1 imports read, which points up"),
        ("table.py", "def f():\n    from aggarray import plan", "table.py:2 imports plan, which points up"),
        ("table.py", "from . import plan", "table.py:1 imports plan, which points up"),
        ("table.py", "import aggarray.plan as p", "table.py:1 imports plan, which points up"),
        ("table.py", "import importlib\nimportlib.import_module('aggarray.cli')", "table.py:2 imports cli, which points up"),
        ("table.py", "from aggarray import open", "table.py:1 imports __init__, which points up"),
        ("units.py", "from aggarray.labels import locate", "units.py:1 imports labels, which points sideways"),
        ("formats/zarr.py", "def f():\n    import zarr", None),
        ("formats/__init__.py", "from .base import Format\nfrom ..table import Matrix", None),
        ("formats/__init__.py", "from ..master import MasterArray", "formats/__init__.py:1 imports master, which points up"),
        ("master.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import xarray", None),
        ("master.py", "def f():\n    import xarray.core", "master.py:2 imports xarray, which belongs in adapters"),
        ("novel.py", "", "'novel' has no layer"),
    ],
)
def test_the_walk_finds_faults(tmp_path: Path, module: str, text: str, words: str | None) -> None:
    for name in ("__init__.py", "errors.py", "formats/__init__.py", "formats/base.py", module):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text if name == module else "", encoding="utf-8")
    found = faults(tmp_path)
    assert found == [] if words is None else len(found) == 1 and words in found[0]


def test_import_loads_nothing_heavy() -> None:
    script = f"import sys; from {PACKAGE} import *; print(*sorted({set(HOMES)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
