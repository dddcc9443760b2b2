"""Reader of the aggregation variables of CFA-0.6.2 and earlier drafts.

The terms, in any case, are ``location`` (sizes of fragments), ``file``, ``address`` and ``format``; others are ignored. If
``shape`` is among them, it has the sizes, and ``location`` the file names. ``value`` is for fragments of one value each. The
meaning of a term thus depends on the set of terms.
"""

from __future__ import annotations

from aggarray.formats.base import Structure, Variable
from aggarray.index.conventions.foreign import ForeignArrays, ForeignFile, Values, shown
from aggarray.index.conventions.fragments import Terms, foreign, is_legacy, parsed_terms, term_variable
from aggarray.index.uris import NOWHERE, PathMap


class _CFA062:
    name, marks = "CFA-0.6.2", ("aggregated_data",)

    def recognises(self, structure: Structure) -> bool:
        """Return whether a file has aggregation variables of this convention."""
        return any(map(is_legacy, structure.variables))

    def read(self, structure: Structure, values: Values, path_map: PathMap = NOWHERE) -> ForeignArrays:
        """Return the arrays of a file, or raise IndexFileError with the variable."""
        variables = [v for v in structure.variables if "aggregated_data" in v.attrs]
        return foreign(ForeignFile(structure, values, path_map), variables, _terms)


def _terms(source: ForeignFile, variable: Variable) -> Terms:
    written = parsed_terms(source, variable)
    names = {term.lower(): name for term, name in written.items()}
    roles = {"map": "shape", "uris": "location"} if "shape" in names else {"map": "location", "uris": "file"}
    roles |= {"identifiers": "address", "unique_values": "value"}
    if roles["map"] not in names or len(names) < len(written):
        hint = "give location, file and address, or location and value, each once"
        raise source.fault(variable, f"aggregated_data has the terms {shown(list(written))}", hint)
    variables = {term: source.find(name, variable) for term, name in names.items()}
    used = {r: term_variable(source, variable, term, names[term]) for r, term in roles.items() if term in names}
    others = tuple(v for term, v in variables.items() if v is not None and term not in roles.values())
    return Terms(**used, loose=True, others=others)


CONVENTION = _CFA062()
