"""Deprecated names and arguments warn where they are used, and are removed in time."""

import ast
import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import aggarray
from aggarray import deprecation
from aggarray.deprecation import deprecated, renamed_argument, warn_deprecated
from tests.support.paths import ROOT

#: Functions of `aggarray.deprecation` that take the versions ``since`` and ``removal``.
KINDS = {"warn_deprecated", "deprecated", "renamed_argument"}


class Box:
    """A class with a deprecated method and a renamed argument."""

    @deprecated("Box.take", since="0.2", removal="0.4")
    def pick(self, item: int) -> int:
        """Return an item."""
        return item

    @renamed_argument("nearest", "method", since="0.2", removal="0.4")
    def take(self, item: int, method: str | None = None) -> tuple[int, str | None]:
        """Return an item and the method."""
        return item, method


def numbers(version: str) -> tuple[int, int]:
    """Return the major and minor number of a version."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def faults(source: str, version: str) -> Iterator[str]:
    """Yield the deprecations of a module that are too short, or that this version ends."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in KINDS:
            named = {k.arg: k.value.value for k in node.keywords if k.arg and isinstance(k.value, ast.Constant)}
            if {"since", "removal"} <= named.keys():
                since, removal = numbers(str(named["since"])), numbers(str(named["removal"]))
                if removal < (since[0], since[1] + 2) and removal[0] == since[0]:
                    yield f"line {node.lineno}: warns for less than two minor versions"
                if removal <= numbers(version):
                    yield f"line {node.lineno}: due in {named['removal']}: remove it"


def test_it_warns_once_per_place_and_names_the_replacement() -> None:
    box = Box()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for number in range(3):
            assert box.pick(number) == number
        line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
        assert box.take(1, nearest="pad") == (1, "pad")  # type: ignore[call-arg]
        assert box.take(1, method="pad") == (1, "pad")
    assert [(w.category, w.filename, w.lineno) for w in caught] == [
        (DeprecationWarning, __file__, line),
        (DeprecationWarning, __file__, line + 2),
    ]
    first, second = (str(w.message) for w in caught)
    assert first == "Box.pick() is deprecated since aggarray 0.2 and will be removed in 0.4; use Box.take"
    assert (
        second == "argument 'nearest' of Box.take() is deprecated since aggarray 0.2 and will be removed in 0.4; use 'method'"
    )


def test_a_module_warns_where_a_renamed_object_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def __getattr__(name):\n    import aggarray.deprecation as d\n"
    text += "    if name != 'Cell':\n        raise AttributeError(name)\n"
    text += "    d.warn_deprecated('m.Cell', 'm.Partition', since='0.2', removal='0.4')\n    return 5\n"
    (tmp_path / "module_with_former_name.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(DeprecationWarning, match="use m.Partition") as caught:
        from module_with_former_name import Cell  # type: ignore[import-not-found]
    assert Cell == 5 and caught[0].filename == __file__


def test_both_names_of_an_argument_raise() -> None:
    with pytest.warns(DeprecationWarning), pytest.raises(TypeError, match="has both 'method' and 'nearest'"):
        Box().take(1, nearest="pad", method="pad")  # type: ignore[call-arg]


def test_signatures_and_docstrings_stay() -> None:
    assert [*inspect.signature(Box.take).parameters] == ["self", "item", "method"]
    assert (Box.pick.__name__, Box.pick.__doc__) == ("pick", "Return an item.")


@pytest.mark.heavy
def test_no_deprecation_is_due_or_too_short() -> None:
    for path in sorted((ROOT / "aggarray").rglob("*.py")):
        if path != Path(deprecation.__file__):
            assert [*faults(path.read_text(encoding="utf-8"), aggarray.__version__)] == [], path


@pytest.mark.parametrize(
    ("since", "removal", "version", "count"),
    [("0.2", "0.4", "0.3.9", 0), ("0.2", "0.4", "0.4.0", 1), ("0.2", "0.3", "0.2.0", 1), ("0.9", "1.0", "0.9.1", 0)],
)
def test_due_deprecations_are_found(since: str, removal: str, version: str, count: int) -> None:
    assert warn_deprecated.__name__ in KINDS
    source = f"@deprecated('b', since={since!r}, removal={removal!r})\ndef a(): ..."
    assert len([*faults(source, version)]) == count
