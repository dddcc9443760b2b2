"""How are the aggregation variables of CF-1.13 read (CF section 2.8, appendix L)?

A scalar variable with ``aggregated_dimensions`` and ``aggregated_data``, whose terms are exactly ``map``, ``uris`` and
``identifiers``, or ``map`` and ``unique_values``. Names are case-sensitive.
"""

from aggarray.formats.base import Structure, Variable
from aggarray.index.conventions.foreign import ForeignArrays, ForeignFile, Values, shown
from aggarray.index.conventions.fragments import Terms, foreign, is_legacy, parsed_terms, term_variable
from aggarray.index.uris import NOWHERE, PathMap

_EXACTLY = ({"map", "uris", "identifiers"}, {"map", "unique_values"})
_ATTRIBUTES = ("aggregated_data", "aggregated_dimensions")


class _CF113:
    """The convention CF-1.13."""

    name = "CF-1.13"

    def recognises(self, structure: Structure) -> bool:
        """Tell whether a file has aggregation variables, and none in the words of older conventions."""
        found = _aggregations(structure)
        return bool(found) and not any(map(is_legacy, found))

    def read(self, structure: Structure, values: Values, moves: PathMap = NOWHERE) -> ForeignArrays:
        """Read a file; IndexFileError names the variable and the value at fault."""
        source = ForeignFile(structure, values, moves)
        return foreign(source, {v.name: (v, _terms(source, v)) for v in _aggregations(structure)})


def _aggregations(structure: Structure) -> list[Variable]:
    return [v for v in structure.variables if any(a in v.attrs for a in _ATTRIBUTES)]


def _terms(source: ForeignFile, variable: Variable) -> Terms:
    names = parsed_terms(source, variable)
    if set(names) not in _EXACTLY:
        wanted = "map, uris and identifiers, or map and unique_values"
        raise source.fault(variable, f"aggregated_data has the terms {shown(sorted(names))}: give {wanted}")
    found = {term: term_variable(source, variable, term, name) for term, name in names.items()}
    return Terms(found["map"], found.get("uris"), found.get("identifiers"), found.get("unique_values"))


CONVENTION = _CF113()
