"""Saving and restoring of aggregations; `aggarray.index` stores arrays."""

import functools
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from aggarray import index
from aggarray.aggregate.report import Duplicate, Problem, Report
from aggarray.aggregate.rules import Refusal, Rules, Skipped
from aggarray.errors import IndexFileError
from aggarray.formats.base import LIBRARY_ERRORS
from aggarray.index.columns import plain, unplain
from aggarray.index.pickling import array_of_index as array_of_index  # its name in earlier pickles
from aggarray.index.uris import real_path
from aggarray.opening.joining import Outcome
from aggarray.opening.provenance import Provenance, Selection


def details_to_save(path: str, result: Outcome, provenance: Provenance, how: Mapping[str, Any]) -> Report:
    """Save an aggregation; report arrays that the convention cannot express."""
    target = os.path.realpath(path)
    structures, others = provenance.structures(), provenance.others()
    if os.path.isfile(target) and target not in provenance.saved and not index.may_be_replaced(target):
        hint = "save the index under another name, or remove the file"
        raise IndexFileError("exists and is not an index", path=target, hint=hint)
    files: dict[str, int] = {}

    def code(uri: str) -> int:
        return files.setdefault(uri, len(files))

    details = {
        "rules": {f.name: plain(getattr(provenance.rules, f.name)) for f in fields(Rules)},
        "variables": provenance.variables,
        "selections": [[s.names, plain(dict(s.attributes))] for s in provenance.selections],
        "how": dict(how),
        "refusals": [[r.arrays, [code(f) for f in r.files], r.rule, r.reason] for r in result.refusals],
        "skipped": [[code(s.file), s.variable, s.reason] for s in result.skipped],
        "duplicates": [[d.array, code(d.file), code(d.kept)] for d in result.duplicates],
    }
    contents = index.IndexContents(result.arrays, structures, others, details, list(files), how["chunk_table"])
    expected = provenance.saved.get(target)
    left_out, generation = index.save(path, contents, how["convention"], how["relative"], expected)
    provenance.saved[target] = generation
    problems = [Problem("convention", target, f"{name}: {reason}; aggarray reads it all the same") for name, reason in left_out]
    return Report(not problems, tuple(problems))


def restore(path: str, how: index.Opening) -> tuple[Outcome, Provenance]:
    """Open an index of aggarray; raise IndexFileError if it is not valid."""
    loaded = index.load(path, how)
    details, files = loaded.details, loaded.files
    try:
        rules = Rules(**{name: unplain(value) for name, value in details["rules"].items()})
        result = Outcome(
            tuple(a._with_origin(array_of_index, path, loaded.generation, n, how) for n, a in enumerate(loaded.arrays)),
            tuple(
                Refusal(tuple(names), tuple(files[i] for i in where), rule, reason)
                for names, where, rule, reason in details["refusals"]
            ),
            tuple(Skipped(files[i], variable, reason) for i, variable, reason in details["skipped"]),
            tuple(Duplicate(name, files[i], files[k]) for name, i, k in details["duplicates"]),
        )
        variables = None if details["variables"] is None else tuple(map(str, details["variables"]))
        chosen = ((names, unplain(attrs)) for names, attrs in details["selections"])
        selections = tuple(Selection(None if n is None else tuple(map(str, n)), attrs) for n, attrs in chosen)
        kept_as = {"convention": str(details["how"]["convention"]), "relative": bool(details["how"]["relative"])}
        kept_as["chunk_table"] = bool(details["how"].get("chunk_table", True))  # absent in indexes of earlier releases
    except (*LIBRARY_ERRORS, RecursionError) as error:
        what = f"a damaged index ({' '.join(repr(error).split()):.200})"
        raise IndexFileError(what, path=path, hint="save it again from the data files") from error
    saved = {real_path(path): loaded.generation}
    # Cached: they cannot be read from an index that was saved over.
    structures, others = functools.cache(loaded.structures), functools.cache(loaded.others)
    rules_and_selections = rules, variables, selections, how.access
    return result, Provenance(*rules_and_selections, structures, others, saved=saved, how=kept_as)
