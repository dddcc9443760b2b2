"""Reader of CF-1.13 aggregation variables (CF section 2.8, appendix L).

An aggregation variable is a scalar with ``aggregated_dimensions`` and ``aggregated_data``, whose terms are exactly ``map``,
``uris`` and ``identifiers``, or ``map`` and ``unique_values``. Names are case-sensitive.
"""

from __future__ import annotations

from aggarray.formats.base import Structure, Variable
from aggarray.index.conventions.foreign import ForeignArrays, ForeignFile, Values, shown
from aggarray.index.conventions.fragments import Terms, foreign, is_legacy, parsed_terms, term_variable
from aggarray.index.uris import NOWHERE, PathMap

_TERMS = ({"map", "uris", "identifiers"}, {"map", "unique_values"})
_ATTRIBUTES = ("aggregated_data", "aggregated_dimensions")


class _CF113:
    name, marks = "CF-1.13", _ATTRIBUTES

    def recognises(self, structure: Structure) -> bool:
        """Return whether a file has aggregation variables, all of CF-1.13."""
        variables = _aggregations(structure)
        return bool(variables) and not any(map(is_legacy, variables))

    def read(self, structure: Structure, values: Values, path_map: PathMap = NOWHERE) -> ForeignArrays:
        """Return the arrays of a file, or raise IndexFileError with the variable."""
        return foreign(ForeignFile(structure, values, path_map), _aggregations(structure), _terms)


def _aggregations(structure: Structure) -> list[Variable]:
    return [v for v in structure.variables if any(a in v.attrs for a in _ATTRIBUTES)]


def _terms(source: ForeignFile, variable: Variable) -> Terms:
    names = parsed_terms(source, variable)
    if set(names) not in _TERMS:
        hint = "give map, uris and identifiers, or map and unique_values"
        raise source.fault(variable, f"aggregated_data has the terms {shown(sorted(names))}", hint)
    terms = {term: term_variable(source, variable, term, name) for term, name in names.items()}
    return Terms(terms["map"], terms.get("uris"), terms.get("identifiers"), terms.get("unique_values"))


CONVENTION = _CF113()
