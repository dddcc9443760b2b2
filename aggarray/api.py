"""How does a user get from a folder of files to arrays? `open` and `concat`, and the `Aggregation` that opening gives."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aggarray.aggregate import aggregate
from aggarray.aggregate.apart import differing_attributes, differing_facets, labels
from aggarray.aggregate.concat import concat
from aggarray.aggregate.join import same_attribute
from aggarray.aggregate.report import (
    Duplicate,
    Problem,
    Report,
    duplicate_problems,
    file_problems,
    gap_problems,
    hole_problems,
    skipped_problems,
)
from aggarray.aggregate.rules import Refusal, Rules, Skipped
from aggarray.aggregate.variables import arrays_of
from aggarray.errors import AggarrayError, AggregationError, NotFoundError
from aggarray.master import MasterArray
from aggarray.read import Access
from aggarray.scan import Source, find_files, scan_files, unreadable

__all__ = ["Aggregation", "concat", "open"]

Progress = Callable[[int, int, str], None]
DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Aggregation:
    """A collection of master arrays: the data variables of a source, joined; coordinates hang on them.

    ``arrays``: the arrays; ``refusals``: why arrays of one identity stayed apart; ``skipped``: what could not be used;
    ``duplicates``: files left out because they repeat others exactly.
    """

    arrays: tuple[MasterArray, ...]
    refusals: tuple[Refusal, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    duplicates: tuple[Duplicate, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays, each once."""
        return tuple(dict.fromkeys(a.name or "" for a in self.arrays))

    def __len__(self) -> int:
        return len(self.arrays)

    def __iter__(self) -> Iterator[MasterArray]:
        return iter(self.arrays)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> MasterArray:
        """Return the one array of a name; NotFoundError lists the names, or what tells several arrays of it apart."""
        found = [a for a in self.arrays if a.name == name]
        if len(found) == 1:
            return found[0]
        if not found:
            raise NotFoundError(f"no array {name!r}: there is {', '.join(self.names) or 'none'}")
        apart = _telling_apart(found)
        raise NotFoundError(f"{len(found)} arrays are named {name!r}: select one with agg.select({name!r}, ...); {apart}")

    def select(self, name: str | None = None, **attributes: Any) -> "Aggregation":
        """Return the arrays of a name and with attributes of the values given, looked up in `attrs`, then in `file_attrs`."""

        def fits(array: MasterArray) -> bool:
            return (name is None or array.name == name) and all(_has(array, k, v) for k, v in attributes.items())

        # A file that serves an array which is not selected is no mere copy.
        serving = {str(uri) for array in self.arrays for uri in array._matrix.references.uris}
        alone = tuple(d for d in self.duplicates if d.file not in serving)
        return replace(self, arrays=tuple(a for a in self.arrays if fits(a)), duplicates=alone)

    def check(self) -> Report:
        """Report gaps in regular time axes, holes that no file covers, and files that only repeat others, are gone or damaged.

        Every file is opened; values are not read.
        """
        problems: list[Problem] = []
        for array in self.arrays:
            problems += gap_problems(array)
            problems += hole_problems(array)
        problems += duplicate_problems(self.duplicates, self.arrays)
        problems += file_problems(self.arrays)
        problems += skipped_problems(self.skipped)
        return Report(not problems, tuple(problems))

    def __repr__(self) -> str:
        lines = [f"<aggarray.Aggregation of {len(self.arrays)} arrays>"]
        apart = [f" [{label}]" if label else "" for label in labels(self.arrays)]
        lines += [f"  {repr(a).splitlines()[0]}{label}" for a, label in zip(self.arrays[:20], apart, strict=False)]
        lines += [f"  ... and {len(self.arrays) - 20} more"] if len(self.arrays) > 20 else []
        if self.refusals or self.skipped:
            lines.append(f"  {len(self.refusals)} refusals, {len(self.skipped)} skipped")
        return "\n".join(lines)


def _has(array: MasterArray, key: str, value: Any) -> bool:
    for attrs in (array.attrs, array.file_attrs):
        if key in attrs:
            return same_attribute(attrs[key], value)
    return key in ("units", "calendar") and getattr(array, key) == value


def _telling_apart(found: Sequence[MasterArray]) -> str:
    """List the attributes in which arrays differ, with their values: facets, then others, those of most values first."""
    texts = []
    for differing in (differing_facets(found), differing_attributes(found)):
        for key, values in sorted(differing, key=lambda item: -len(set(item[1]))):
            distinct = sorted({v for v in values if v is not None}) + ["none"] * (None in values)
            texts.append(f"{key}: {', '.join(distinct[:8])}{', ...' if len(distinct) > 8 else ''}")
    if texts:
        return "they differ in " + "; ".join(texts[:4])
    return f"their shapes are {', '.join(str(a.shape) for a in found[:8])}"


def open(
    source: Source,
    *,
    rules: Rules = DEFAULT_RULES,
    variables: Sequence[str] | None = None,
    progress: bool | Progress | None = None,
    processes: int | None = None,
    missing: str = "raise",
) -> Aggregation:
    """Open files as arrays: one per variable and dataset, joined along the dimensions whose coordinates differ.

    ``source``: a path, a glob (``**`` allowed), a folder, or a list of these. ``rules``: see `Rules`. ``variables``: names to
    keep. ``progress``: True for a bar on standard error, or a callable (done, total, what). ``processes``: how many scan,
    None picks. ``missing``: what reading a file that is gone does: "raise" or "fill".

    One bad file among several is listed in `skipped`; where nothing at all can be read, its error is raised. Raises
    MissingFileError where the source names nothing, AggregationError for arguments that make no sense, NotFoundError for
    ``variables`` that no file has.
    """
    variables = variables if variables is None or isinstance(variables, str) else list(variables)
    _check_arguments(rules, variables, processes, missing)
    paths = find_files(source)
    scanned = scan_files(paths, processes, _progress(progress))
    arrays: list[MasterArray] = []
    skipped: list[Skipped] = []
    for path, found in scanned:
        if isinstance(found, AggarrayError):
            skipped.append(Skipped(path, None, unreadable(path, found)))
            continue
        made, odd = arrays_of(found)
        skipped += [Skipped(path, variable, reason) for variable, reason in odd]
        arrays += made if variables is None else [a for a in made if a.name in variables]
    _check_found(scanned, arrays, variables)
    joined = aggregate([replace(a, _access=Access(missing)) for a in arrays] if missing != "raise" else arrays, rules)
    skipped.sort(key=lambda s: s.file)
    return Aggregation(tuple(joined.arrays), tuple(joined.refusals), tuple(skipped), tuple(joined.duplicates))


def _check_arguments(rules: Any, variables: Any, processes: Any, missing: str) -> None:
    if not isinstance(rules, Rules):
        raise AggregationError(f"rules={rules!r}: give aggarray.Rules(...)")
    if isinstance(variables, str):
        raise AggregationError(f"variables={variables!r}: give a list of names")
    if missing not in ("raise", "fill"):
        raise AggregationError(f"missing={missing!r}: give 'raise' or 'fill'")
    if processes is not None and (isinstance(processes, bool) or not isinstance(processes, int | np.integer) or processes < 1):
        raise AggregationError(f"processes={processes!r}: give a whole number of at least 1")


def _check_found(scanned: Sequence[tuple[str, Any]], arrays: Sequence[MasterArray], variables: Sequence[str] | None) -> None:
    """Raise the error of a source of which nothing could be read, and NotFoundError for a variable nobody has."""
    errors = [found for _, found in scanned if isinstance(found, AggarrayError)]
    if len(errors) == len(scanned):
        raise errors[0]
    absent = [v for v in variables or () if v not in {a.name for a in arrays}]
    if absent:
        names = sorted({v.name for _, found in scanned if not isinstance(found, AggarrayError) for v in found.variables})
        files = scanned[0][0] if len(scanned) == 1 else f"{len(scanned)} files"
        raise NotFoundError(f"{files}: no data variable {', '.join(map(repr, absent))}: there is {', '.join(names) or 'none'}")


def _progress(progress: bool | Progress | None) -> Progress | None:
    if progress is None or progress is False:
        return None
    if progress is not True and not callable(progress):
        raise AggregationError(f"progress={progress!r}: give True, None or a callable (done, total, what)")
    return _bar if progress is True else progress


def _bar(done: int, total: int, what: str) -> None:
    """Draw a bar on standard error; the last step ends its line."""
    if done < total and done % max(1, total // 200):
        return
    width = 30
    filled = width * done // max(1, total)
    end = "\n" if done == total else ""
    print(f"\r{what} [{'#' * filled}{'.' * (width - filled)}] {done}/{total}{end}", end="", file=sys.stderr, flush=True)
