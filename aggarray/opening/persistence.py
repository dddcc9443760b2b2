"""Saving of aggregations; `aggarray.index` stores arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from aggarray.aggregate.report import Problem, Report
from aggarray.aggregate.rules import Rules
from aggarray.dataclass import fields
from aggarray.errors import AggregationError, IndexFileError
from aggarray.index.encoder import plain
from aggarray.index.pickling import array_of_index as array_of_index  # its name in earlier pickles
from aggarray.index.saving import CONVENTIONS, IndexContents, may_be_replaced
from aggarray.index.saving import save as save_index
from aggarray.index.uris import home_of, real_path
from aggarray.opening.provenance import Listing, Outcome, Provenance, Selection
from aggarray.opening.verification import verified
from aggarray.opening.where import TextSelection
from aggarray.scan.files import scanning_on
from aggarray.storage.files import given_path
from aggarray.storage.urls import is_remote


def save(
    path: str | os.PathLike[str], outcome: Outcome, provenance: Provenance, how: Mapping[str, Any], executor: Any = None
) -> Report:
    """Save an aggregation, verified; report arrays that the convention lacks."""
    if how["convention"] not in CONVENTIONS:
        hint = f"give one of {', '.join(CONVENTIONS)}"
        raise AggregationError(f"convention={how['convention']!r} is invalid", hint=hint)
    with provenance.access.reach(), scanning_on(executor):
        path = given_path(path)
        if is_remote(path):
            from aggarray.storage.remote.replacement import check_writable

            check_writable(path)
        return _save(path, *verified(outcome, provenance), how)


def _save(path: str, result: Outcome, provenance: Provenance, how: Mapping[str, Any]) -> Report:
    target = real_path(path)
    records = provenance.records()
    structures, others = provenance.structures() if records is None else records, provenance.others()
    if target not in provenance.saved and _is_other_file(target):
        hint = "save the index under another name"
        raise IndexFileError("exists and is not an index", path=target, hint=hint)
    files: dict[str, int] = {}
    redefined: set[tuple[str, str]] = set()

    def code(uri: str) -> int:
        return files.setdefault(uri, len(files))

    details = {
        "rules": _fields(provenance.rules),
        "variables": provenance.variables,
        "selections": [[s.names, plain(dict(s.attributes))] for s in provenance.selections if isinstance(s, Selection)],
        "where": [dict(s.patterns) for s in provenance.selections if isinstance(s, TextSelection)],
        "how": dict(how),
        "refusals": [[r.arrays, [code(f) for f in r.files], r.rule, r.reason] for r in result.refusals],
        "skipped": [[code(s.file), s.variable, s.reason] for s in result.skipped],
        "duplicates": [[d.array, code(d.file), code(d.kept)] for d in result.duplicates],
    }
    if provenance.fixes:
        from aggarray.opening.fixing import redefined_variables, stored_fixes

        details["fixes"] = stored_fixes(provenance.fixes, home_of(path), how["relative"])
        redefined = redefined_variables(structures, provenance.fixes)
    contents = IndexContents(result.arrays, structures, others, details, list(files), how["chunk_table"], redefined)
    expected = provenance.saved.get(target)
    left_out, generation = save_index(path, contents, how["convention"], how["relative"], expected)
    provenance.saved[target] = generation
    problems = [Problem("convention", target, f"{name}: only aggarray can read it: {reason}") for name, reason in left_out]
    return Report(not problems, Listing(problems))


def _fields(rules: Rules) -> dict[str, Any]:
    """Return the fields of rules, without one that earlier releases lack."""
    stored = {f.name: plain(getattr(rules, f.name)) for f in fields(Rules)}
    return stored if rules.forecast_cubes else {name: value for name, value in stored.items() if name != "forecast_cubes"}


def _is_other_file(target: str) -> bool:
    """Return whether a path is a file that a save must not replace."""
    if not is_remote(target):
        return os.path.isfile(target) and not may_be_replaced(target)
    from aggarray.storage.credentials import with_access
    from aggarray.storage.remote.replacement import access_to, version_of

    if version_of(target) is None:
        return False
    with with_access(access_to(target)):
        return not may_be_replaced(target)
