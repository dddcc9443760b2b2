"""Columns of texts equal lists of texts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.memory import texts as module
from aggarray.memory.texts import Texts

pytestmark = pytest.mark.quick

TEXT = st.text(st.sampled_from("ab:%/.\0é€") | st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    ["", "file:///a", "x" * 5000, "x" * 4095 + "é:", "a" * 20, "b" + "a" * 20, "ab" * 10, "c/" + "ab" * 10, "b" * 16]
)
LISTS = st.lists(TEXT, max_size=12).flatmap(lambda few: st.lists(st.sampled_from(few or [""]), max_size=40))


def scattered(texts: list[str]) -> Texts:
    """Return a column whose texts lie in the opposite order, with other bytes between them."""
    made = Texts.of([part for text in reversed(texts) for part in (text, "\xff\0")])
    return made.take(np.arange(2 * len(texts))[::-1][1::2])


@given(LISTS)
def test_columns_are_lists(texts: list[str]) -> None:
    for column in (Texts.of(texts), scattered(texts)):
        assert (list(column), column[:], [column[i] for i in range(len(column))]) == (texts, texts, texts)
        assert column.text() == "".join(texts)
        assert list(column.take(np.arange(len(texts))[1::2])) == texts[1::2]
        for text in {*texts, "", "a"}:
            assert column.equals(text).tolist() == [t == text for t in texts]
            assert column.start_with(text).tolist() == [t.startswith(text) for t in texts]


@given(LISTS)
def test_facts_of_texts(texts: list[str]) -> None:
    for column in (Texts.of(texts), scattered(texts)):
        facts = column.fingerprints()
        assert facts.unusual.tolist() == [not t.isascii() or any(c < " " for c in t) for t in texts]
        assert facts.colons.tolist() == [":" in t for t in texts]
        for character in ":\0a":
            assert column.contain(character).tolist() == [character in t for t in texts]
    joined = "".join(texts)
    assert Texts.of(texts).is_plain() == (joined.isascii() and min(joined, default=" ") >= " " and ":" not in joined)
    assert Texts.of(texts).buffer_has(":") == (":" in joined)
    assert not texts or not scattered(texts).is_plain()
    assert Texts.of(texts).end_with_one_of("/:") == any(not t or t[-1] in "/:" for t in texts)


@pytest.mark.parametrize("block", [3, 1 << 14])
@pytest.mark.parametrize("factor", [0, int(module._FACTOR)])
def test_distinct_texts(monkeypatch: pytest.MonkeyPatch, block: int, factor: int) -> None:
    """With the factor 0 all texts have one hash."""
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_FACTOR", np.uint64(factor))

    @given(LISTS)
    def check(texts: list[str]) -> None:
        numbers: dict[str, int] = {}
        expected = [numbers.setdefault(text, len(numbers)) for text in texts]
        for column in (Texts.of(texts), scattered(texts)):
            rows, codes = column.distinct()
            assert ([texts[i] for i in rows], codes.tolist()) == (list(numbers), expected)

    check()


def test_texts_that_are_no_utf8() -> None:
    column = Texts.of(["\udcff", "a"])
    assert list(column) == ["\udcff", "a"] and column.text() == "\udcffa"


@pytest.mark.parametrize("block", [2, 1 << 14])
def test_texts_in_order_are_distinct_without_sorting(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_are_distinct", None)
    names = [f"/archive/tas_day_model_{number:07}.nc" for number in range(7)]
    rows, codes = Texts.of(names).distinct()
    assert (rows.tolist(), codes.tolist()) == ([*range(7)], [*range(7)])
    monkeypatch.undo()
    for repeated in (3, 4):
        rows, codes = Texts.of([*names[: repeated + 1], *names[repeated:]]).distinct()
        assert len(rows) == 7 and codes[repeated] == codes[repeated + 1]
