"""Restoring of the aggregation that an index stores."""

import functools

from aggarray.aggregate.rules import Duplicate, Refusal, Rules, Skipped
from aggarray.errors import LIBRARY_ERRORS, IndexFileError
from aggarray.index import Opening
from aggarray.index.columns import unplain
from aggarray.index.loading import load
from aggarray.index.pickling import array_of_index
from aggarray.index.uris import real_path
from aggarray.opening.provenance import Outcome, Provenance, Selection


def restore(path: str, how: Opening) -> tuple[Outcome, Provenance]:
    """Open an index of aggarray; raise IndexFileError if it is not valid."""
    loaded = load(path, how)
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
