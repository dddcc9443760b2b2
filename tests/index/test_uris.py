"""Files of an index, resolved lazily."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aggarray.errors import AggarrayError
from aggarray.index.indexed_files import Files
from aggarray.index.reference_search import rows_named
from aggarray.index.uris import NOWHERE, resolve_uri
from aggarray.memory.texts import Texts

pytestmark = pytest.mark.quick

PARTS = (
    "a",
    "a.nc",
    "index.nca",
    "i",
    ".",
    "..",
    ".hidden",
    "..x",
    "",
    "/",
    "//",
    "%2e",
    "%61",
    "inde%78.nca",
    "b c",
    "a:b",
    "\n",
)
NAMES = st.lists(st.sampled_from(PARTS), max_size=5).map("/".join) | st.text("a./%:\n\x00é", max_size=8)


@given(names=st.lists(NAMES, max_size=6), folder=st.sampled_from(["/data/x", "/", "/data/../x", "s3://b/d", "https://h/d"]))
@example(names=["a.nc/."], folder="/data/x")
@example(names=["run/.."], folder="/data/x")
@example(names=["./run/"], folder="/data/x")
@example(names=[""], folder="s3://b/d")
@pytest.mark.parametrize("column", (Texts.of, list))
def test_names_alone_and_in_turn(column: type, names: list[str], folder: str) -> None:
    files = Files(column(names), folder, NOWHERE)
    try:
        alone = [files[i] for i in range(len(files))]
    except AggarrayError as error:
        with pytest.raises(type(error)):
            list(files)
    else:
        assert list(files) == alone


@given(names=st.lists(NAMES.filter(bool), max_size=6))
@example(names=["run/index.nc%61", "index.nc%61/.", "index.nca/../b/../index.nca", "%69ndex.nca", "index.nca//", "xindex.nca"])
@pytest.mark.parametrize("own", ("index.nca", "a", "a.nc"))
def test_rows_of_a_name(own: str, names: list[str]) -> None:
    texts = Texts.of([name for name in names if ":" not in name and "\x00" not in name])
    paths = list(Files(texts, "/data", NOWHERE))
    expected = {row for row, path in enumerate(paths) if path.rpartition("/")[2] == own}
    assert expected <= set(rows_named(texts, own).tolist())


@pytest.mark.parametrize("column", [Texts.of, list])
def test_names_of_many_files_are_resolved_as_each(column: Callable[[list[str]], Any]) -> None:
    plain = [f"../d{number % 3}/a{number}.nc" for number in range(40)]
    for names in (plain, [*plain, "file://other.host/a.nc"], [*plain, "b%20c.nc", "/x/y.nc", "s3://bucket/a.nc"]):
        files = Files(column(names), "/data/index", NOWHERE)
        expected = [resolve_uri(name, "/data/index") for name in names if "other.host" not in name]
        assert [files[number] for number in range(len(expected))] == expected
        assert [files[number] for number in range(len(expected))] == expected
    assert Files(column(plain[:16]), "/data/index", NOWHERE)[-1] == resolve_uri(plain[15], "/data/index")
