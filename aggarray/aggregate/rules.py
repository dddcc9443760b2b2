"""What may be joined, and how? `Rules` holds the wishes; `Refusal` and `Skipped` say what was not joined and why."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aggarray.errors import AggregationError

#: Attributes that tell datasets apart: CMIP6, CMIP5, CORDEX.
FACETS = (
    *("mip_era", "activity_id", "institution_id", "source_id", "experiment_id", "variant_label", "table_id", "grid_label"),
    *("institute_id", "model_id", "realization", "initialization_method", "physics_version", "frequency", "modeling_realm"),
    *("CORDEX_domain", "driving_model_id", "driving_experiment_name", "driving_model_ensemble_member", "rcm_version_id"),
)


@dataclass(frozen=True, slots=True)
class Rules:
    """How `aggarray.open` joins arrays; the defaults suit a messy real archive.

    ``along``: dimensions to aggregate along, None = all. ``order``: for dimensions without a coordinate, {dimension:
    "given" or "name"}. ``separate_by``: attributes that keep arrays apart. ``tolerance``: coordinates are equal within this
    fraction of their smallest spacing. ``overlap``: "refuse", "first" or "last". ``holes``: "fill" where more than
    ``coverage`` of the matrix is covered, or "refuse". ``units``, ``directions``: wanted of the master, by name and
    by dimension. Raises AggregationError for values that make no sense.

    >>> Rules(overlap="best")
    Traceback (most recent call last):
    aggarray.errors.AggregationError: overlap='best': give one of refuse, first, last
    """

    along: Sequence[str] | None = None
    order: Mapping[str, str] = field(default_factory=dict)
    separate_by: Sequence[str] = FACETS
    tolerance: float = 1e-5
    overlap: str = "refuse"
    holes: str = "fill"
    coverage: float = 0.5
    units: Mapping[str, str] = field(default_factory=dict)
    directions: Mapping[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _one_of("overlap", self.overlap, ("refuse", "first", "last"))
        _one_of("holes", self.holes, ("fill", "refuse"))
        for name in ("along", "separate_by"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise AggregationError(f"{name}={value!r}: give a list of names")
            object.__setattr__(self, name, None if value is None else tuple(value))
        for name in ("order", "units", "directions"):
            object.__setattr__(self, name, dict(getattr(self, name) or {}))
        for dimension, how in self.order.items():
            _one_of(f"order[{dimension!r}]", how, ("given", "name"))
        for name, most in (("tolerance", 0.5), ("coverage", 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
                raise AggregationError(f"{name}={value!r}: give a number from 0 to {most}")


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise AggregationError(f"{name}={value!r}: give one of {', '.join(allowed)}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an array stayed apart from another of its identity: ``arrays`` are names, ``files`` URIs, ``rule`` a short key."""

    arrays: tuple[str, ...]
    files: tuple[str, ...]
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, or a variable of it, that could not be used; ``variable`` None for a whole file."""

    file: str
    variable: str | None
    reason: str


def facet(attrs: Mapping[str, Any], name: str) -> str | None:
    """Return the value of a facet; a CMIP5 table_id by its table name only.

    >>> facet({"table_id": "Table Omon (26 July 2011) 25bb94"}, "table_id")
    'Omon'
    """
    value = attrs.get(name)
    if value is None:
        return None
    text = str(value.item() if getattr(value, "size", 2) == 1 else value).strip()
    if name == "table_id":
        table = re.match(r"Table\s+(\w+)", text)
        return table.group(1) if table else text
    return text
