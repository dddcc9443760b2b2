"""The examples of the README and of the documentation run as written and give the documented results."""

import importlib
import re
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.support.examples import heavy
from tests.support.figures import figures, shrunk
from tests.support.pages import PAGES, ROOT, blocks, run_page

#: Pages whose examples start clusters, MPI and other software, or take seconds.
LONG = [
    f"docs/{name}.md"
    for name in (
        *("cheat-sheet", "command-line", "parallel", "xarray"),
        *(f"howto/{topic}" for topic in ("cluster", "cookbook", "faq", "forecasts", "from-cf-python", "means")),
    )
]


def in_one_thread() -> AbstractContextManager[object]:
    """Let dask compute in one thread: netCDF-C fails where a thread closes a file of xarray while another reads."""
    return importlib.import_module("dask").config.set(scheduler="synchronous") if find_spec("dask") else nullcontext()


# xarray announces new defaults for code of other projects on these pages.
@pytest.mark.filterwarnings("ignore::FutureWarning:xarray")
@pytest.mark.parametrize("page", heavy(PAGES, only=LONG))
def test_examples(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    with in_one_thread():
        run_page(text, page, tmp_path)
    for drawn, stored in figures(text, page).items():
        ours, theirs = (re.findall(r"-?\d+\.?\d*", svg) for svg in (shrunk((tmp_path / drawn).read_text()), stored.read_text()))
        # Another version of matplotlib may draw other ticks.
        same = len(ours) == len(theirs) and np.allclose(np.array(ours, float), np.array(theirs, float), atol=0.2)
        assert same or len(ours) != len(theirs), f"{stored.name} has changed: python -m tests.support.figures {page}"


@pytest.mark.parametrize(("page", "least"), [("README.md", 15), ("docs/distributed-arrays.md", 15), ("docs/parallel.md", 8)])
def test_results_are_compared(page: str, least: int) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    code = [line for block in blocks(text) if block.language == "python" for line in block.text.splitlines()]
    assert sum("  # " in line for line in code) >= least


@pytest.mark.parametrize(
    "page",
    [
        "```python\n1 + 1  # 3\n```\n",
        "```python\nimport no_such_module\n```\n",
        "```pycon\n>>> 1 + 1\n3\n```\n",
        "```sh\naggarray info nothing.nc\n```\n",
        "```sh\nrm -r x\n```\n",
        "```console\n$ aggarray --version\nanother\n```\n",
        "```ruby\n1\n```\n",
        "```\n1\n```\n",
    ],
)
def test_wrong_examples_are_found(page: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, ImportError)):
        run_page(page, "page", tmp_path)


def test_right_examples_pass(tmp_path: Path) -> None:
    page = """
```python
a = 2  # 3 would be wrong, but this is no expression
a + 1  # 3: a comment
```
```pycon
>>> a + 2
4
>>> print("1 2", "3")
1 ... 3
```
```console
$ aggarray info nothing.nc  # status 1
aggarray: no such file or folder: ...nothing.nc...
```
````{eval-rst}
.. a directive
````
"""
    assert run_page(page, "page", tmp_path) == 4
    assert [b.language for b in blocks(page)] == ["python", "pycon", "console"]


def test_a_page_skips_without_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="needs no_such_module"):
        run_page("<!-- needs: no_such_module -->\n```python\nraise ValueError\n```\n", "page", tmp_path)
