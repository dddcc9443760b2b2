"""Selections of arrays by attributes as text: values and patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from aggarray.aggregate.rules import facet
from aggarray.arrays.master import MasterArray
from aggarray.dataclass import dataclass, replace
from aggarray.errors import NotFoundError
from aggarray.opening.provenance import Listing, Outcome
from aggarray.opening.selection import attributes_hint, values_hint
from aggarray.partition.file_names import paths_among

if TYPE_CHECKING:
    from aggarray.opening.aggregation import Aggregation


@dataclass(frozen=True, slots=True)
class TextSelection:
    """A selection of arrays by patterns: one of each attribute must match."""

    patterns: Mapping[str, Sequence[str]]

    def fits(self, array: MasterArray) -> bool:
        """Return whether an array is selected."""
        return all(any(matches(array, name, p) for p in patterns) for name, patterns in self.patterns.items())


def texts_of(array: MasterArray, name: str) -> list[str]:
    """Return an attribute of an array and of its file as text, [] without."""
    own = {"name": array.name, "units": array.units, "calendar": array.calendar, **array.attrs}
    values = [attrs[name] for attrs in (own, array.file_attrs) if attrs.get(name) is not None]
    texts = [text for attrs in (own, array.file_attrs) if (text := facet(attrs, name)) is not None]
    return list(dict.fromkeys([*texts, *map(str, values)]))


def matches(array: MasterArray, name: str, pattern: str) -> bool:
    """Return whether an attribute is a text, or matches it as a pattern."""
    return any(text == pattern or fnmatchcase(text, pattern) for text in texts_of(array, name))


def where(agg: Aggregation, texts: Mapping[str, Sequence[str]], option: str = "") -> Aggregation:
    """Return the arrays whose attributes have one of the texts given for each.

    A text is a value, values separated by commas, or a pattern such as ``MIROC*``. Raises NotFoundError, which lists what
    there is, for an attribute or a value that no array has. ``option``: names the origin of the texts in errors.
    """
    if not texts:
        return agg
    patterns = {name: _patterns(agg.arrays, name, items, option) for name, items in texts.items()}
    selection = TextSelection(patterns)
    arrays = tuple(a for a in agg if selection.fits(a))
    if not arrays:
        _raise_combination(agg.arrays, patterns, option)
    outcome = restricted(agg._outcome, arrays)
    return replace(agg, **outcome._asdict(), _provenance=agg._provenance.selected(selection))


def restricted(outcome: Outcome, arrays: Sequence[MasterArray]) -> Outcome:
    """Return some arrays of an outcome, with what concerns their files."""
    files = {file for refusal in outcome.refusals for file in refusal.files}.union(d.kept for d in outcome.duplicates)
    serving = paths_among((array._matrix.references for array in arrays), files)
    refusals = Listing(r for r in outcome.refusals if serving.issuperset(r.files))
    return Outcome(tuple(arrays), refusals, outcome.skipped, Listing(d for d in outcome.duplicates if d.kept in serving))


def check_attribute(arrays: Sequence[MasterArray], name: str, option: str, values: Sequence[str] = ()) -> None:
    """Raise NotFoundError, which lists attributes, if no array has one.

    ``values``: what was asked of the attribute.
    """
    if arrays and not any(texts_of(a, name) for a in arrays):
        what = f"{option} {name}: no array has an attribute {name!r}"
        raise NotFoundError(what.strip(), hint=attributes_hint(arrays, name, values, matches, str))


def _patterns(arrays: Sequence[MasterArray], name: str, items: Sequence[str], option: str) -> list[str]:
    """Return the patterns of an attribute; NotFoundError unless each matches."""
    check_attribute(arrays, name, option, items)
    patterns = []
    for item in items:
        # A value may itself contain a comma.
        is_value = any(matches(a, name, item) for a in arrays)
        patterns += [item] if is_value else [part.strip() for part in item.split(",") if part.strip()]
    for pattern in patterns:
        if not any(matches(a, name, pattern) for a in arrays):
            what = f"{option} {name}={pattern}: no array has this value".strip()
            raise NotFoundError(what, hint=values_hint(name, pattern, _values(arrays, name)))
    return list(dict.fromkeys(patterns))


def _raise_combination(arrays: Sequence[MasterArray], patterns: Mapping[str, list[str]], option: str) -> None:
    """Raise NotFoundError for values that no array has all of."""
    chosen, met = list(arrays), list[str]()
    for name, items in patterns.items():
        fitting = [a for a in chosen if TextSelection({name: items}).fits(a)]
        text = f"{name}={','.join(items)}"
        if not fitting:
            what = f"{option} {text}: no array has {' and '.join(['this value', *met])}".strip()
            raise NotFoundError(what, hint=values_hint(name, "", _values(chosen, name)))
        chosen, met = fitting, [*met, text]
    raise NotFoundError("the source has no arrays")


def _values(arrays: Sequence[MasterArray], name: str) -> list[str]:
    return [texts[0] for a in arrays if (texts := texts_of(a, name))]
