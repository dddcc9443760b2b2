"""`Rules` of joins, and what was not joined: `Refusal` and `Skipped`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aggarray.cf.frozen import FrozenDict
from aggarray.dataclass import dataclass, field, fields, replace
from aggarray.errors import AggregationError

if TYPE_CHECKING:
    from aggarray.arrays.master import MasterArray

#: Attributes that distinguish datasets: CMIP6, CMIP5, CORDEX.
FACETS = (
    *("mip_era", "activity_id", "institution_id", "source_id", "experiment_id", "variant_label", "table_id", "grid_label"),
    *("institute_id", "model_id", "realization", "initialization_method", "physics_version", "frequency", "modeling_realm"),
    *("CORDEX_domain", "driving_model_id", "driving_experiment_name", "driving_model_ensemble_member", "rcm_version_id"),
)

#: Facets in the order of columns; those of CMIP5 stand beside their equals in CMIP6.
COLUMN_ORDER = (
    *("mip_era", "activity_id", "institution_id", "institute_id", "source_id", "model_id", "experiment_id", "variant_label"),
    *("realization", "initialization_method", "physics_version", "table_id", "frequency", "modeling_realm", "grid_label"),
)

#: Facets that another facet of the same archive states already, unless they alone tell two arrays apart.
IMPLIED_BY = {
    **{"mip_era": ("activity_id", "source_id"), "activity_id": ("experiment_id",), "institution_id": ("source_id",)},
    **{"institute_id": ("source_id", "model_id"), "model_id": ("source_id",)},
    **{"frequency": ("table_id",), "modeling_realm": ("table_id",)},
}

#: The coordinate that distinguishes final and preliminary data in ERA5.
ERA5_VERSIONS = "expver"


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules by which `aggarray.open` joins arrays.

    The defaults suit archives with irregular metadata. ``along``: dimensions to aggregate along, None = all. ``order``: for
    dimensions without a coordinate, {dimension: "given" or "name"}. ``separate_by``: attributes that keep arrays separate.
    ``tolerance``: coordinates are equal within this fraction of their smallest spacing. ``overlap``: "refuse", "first" or
    "last". ``holes``: "fill" where more than ``coverage`` of the matrix is covered, or "refuse". ``units``, ``directions``: of
    the master, by name and by dimension. ``new_dimension``: an attribute whose values become a leading dimension, or
    ``"name=regex"`` with one group, searched in the file's path. ``versions``: a coordinate that distinguishes versions of the
    same data; the lowest is used. ``trust``: "verify" reads and compares the structure and the coordinates of every file;
    "assume" reads a few files of each group completely and, of the others, only the coordinates in which the files differ; such
    a file is verified before its first read, and when an index is saved. ``forecast_cubes``: see `forecast`.
    Raises AggregationError for invalid or contradictory values.

    >>> Rules(overlap="best")
    Traceback (most recent call last):
    aggarray.errors.AggregationError: overlap='best' is invalid; give one of refuse, first, last
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
    new_dimension: str | None = None
    versions: str | None = None
    trust: str = "verify"
    forecast_cubes: bool = False

    @classmethod
    def cmip(cls) -> Rules:
        """Return rules for CMIP5, CMIP6 and CORDEX: matrices without holes.

        Datasets of these archives are never tiled, so a hole means separate datasets.

        >>> Rules.cmip().holes
        'refuse'
        """
        return cls(holes="refuse")

    @classmethod
    def era5(cls) -> Rules:
        """Return rules for ERA5 and ERA5T: final data where available.

        The rest is preliminary data, identified by ``expver``.

        >>> Rules.era5().versions
        'expver'
        """
        return cls(versions=ERA5_VERSIONS)

    @classmethod
    def forecast(cls, **rules: Any) -> Rules:
        """Return rules for forecasts: arrays over runs and leads.

        Arrays get the leading dimensions ``forecast_reference_time`` and ``forecast_period``; ``time``, a coordinate of both,
        is the valid time. Leads that a run lacks are holes. `MasterArray.forecast` returns views along the valid time. The
        reference time is that of a file, otherwise the date of the units of its times, if that is at most a year before them.
        ``rules``: other fields, such as ``overlap="last"``, or ``new_dimension="forecast_reference_time=regex"``, which takes
        the reference time from a date in the path instead.

        >>> Rules.forecast(overlap="last").coverage
        0.0
        """
        return cls(**{"coverage": 0.0, **rules, "forecast_cubes": True})

    @property
    def member_dimension(self) -> str | None:
        """The name of the new dimension."""
        return None if self.new_dimension is None else parse_dimension(self.new_dimension)[0]

    @property
    def facets(self) -> tuple[str, ...]:
        """The attributes that keep arrays separate, without the new dimension."""
        return tuple(name for name in self.separate_by if name != self.member_dimension)

    @property
    def identifying(self) -> tuple[str, ...]:
        """The attributes that identify the dataset and the member of a file."""
        name = self.member_dimension
        return tuple(dict.fromkeys((*self.separate_by, *(() if name is None else (name,)))))

    def __post_init__(self) -> None:
        _one_of("overlap", self.overlap, ("refuse", "first", "last"))
        _one_of("holes", self.holes, ("fill", "refuse"))
        _one_of("trust", self.trust, ("verify", "assume"))
        object.__setattr__(self, "along", None if self.along is None else _names("along", self.along))
        object.__setattr__(self, "separate_by", _names("separate_by", self.separate_by))
        for name, kind, text in (
            ("order", str, '{dimension: "given" or "name"}'),
            ("units", str, "{name: units}"),
            ("directions", bool, "{dimension: True for increasing, False for decreasing}"),
        ):
            value = {} if getattr(self, name) is None else getattr(self, name)
            kinds = (bool, np.bool) if kind is bool else (kind,)
            if not isinstance(value, Mapping) or not all(isinstance(k, str) and isinstance(v, kinds) for k, v in value.items()):
                raise AggregationError(f"{name}={value!r} is invalid", hint=f"give {text}")
            object.__setattr__(self, name, FrozenDict({k: kind(v) for k, v in value.items()}))
        for dimension, order in self.order.items():
            _one_of(f"order[{dimension!r}]", order, ("given", "name"))
        for name, maximum in (("tolerance", 0.5), ("coverage", 1.0)):
            value = getattr(self, name)
            is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
            if not is_number or not 0 <= value <= maximum:
                raise AggregationError(f"{name}={value!r} is invalid", hint=f"give a number from 0 to {maximum}")
            # NumPy's numbers become Python's, so that rules compare, print and pickle equally.
            object.__setattr__(self, name, float(value))
        if not isinstance(self.forecast_cubes, bool):
            raise AggregationError(f"forecast_cubes={self.forecast_cubes!r} is invalid", hint="give True or False")
        if self.versions is not None and (not isinstance(self.versions, str) or not self.versions):
            hint = "give the name of a coordinate, such as 'expver'"
            raise AggregationError(f"versions={self.versions!r} is invalid", hint=hint)
        self._check_contradictions()

    def _check_contradictions(self) -> None:
        name = self.member_dimension
        if name is not None and name in self.separate_by and self.separate_by != FACETS:
            what = f"new_dimension and separate_by both name the attribute {name!r}"
            raise AggregationError(what, hint="omit it in one of them")
        outside = [d for d in self.order if self.along is not None and d not in self.along]
        if outside:
            what = f"order names {outside[0]!r}, which is not in along={list(self.along or ())}"
            raise AggregationError(what, hint="name it in both")


#: The names of the methods of `Rules` that return rules for an archive.
PRESETS = ("cmip", "era5", "forecast")
#: The names of the rules: the fields of `Rules`.
RULES = tuple(f.name for f in fields(Rules))


def changed_rules(rules: Rules | None, preset: str | None, changes: Mapping[str, Any]) -> Rules:
    """Return rules, or those of a preset by name, with changed fields.

    Raises AggregationError for both, for an unknown preset, and as `Rules` does.

    >>> changed_rules(None, "cmip", {"overlap": "first"}) == Rules(holes="refuse", overlap="first")
    True
    """
    if rules is not None and not isinstance(rules, Rules):
        raise AggregationError(f"rules={rules!r} is invalid", hint="give aggarray.Rules(...)")
    if preset is not None:
        _one_of("preset", preset, PRESETS)
        if rules is not None:
            raise AggregationError(f"rules and preset={preset!r}", hint="give one of them")
        rules = getattr(Rules, preset)()
    return replace(rules or Rules(), **changes)


def parse_dimension(new_dimension: str) -> tuple[str, re.Pattern[str] | None]:
    """Return the name and the path pattern of a new dimension.

    The pattern is None for an attribute. Raises AggregationError unless it is a name or ``name=regex`` with exactly one group.

    >>> parse_dimension("variant_label")
    ('variant_label', None)
    """
    argument = f"new_dimension={new_dimension!r}"
    if not isinstance(new_dimension, str) or not new_dimension.partition("=")[0].isidentifier():
        raise AggregationError(f"{argument} is invalid", hint="give an attribute's name, or name=regex with one group")
    name, equals, pattern = new_dimension.partition("=")
    if not equals:
        return name, None
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise AggregationError(f"{argument}: the pattern does not compile: {error}") from error
    if compiled.groups != 1:
        raise AggregationError(f"{argument}: the pattern has {compiled.groups} groups", hint="give exactly one, for the value")
    return name, compiled


def _names(name: str, value: Any) -> tuple[str, ...]:
    items = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (None,)
    if not all(isinstance(item, str) for item in items):
        raise AggregationError(f"{name}={value!r} is invalid", hint="give a list of names")
    return items


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise AggregationError(f"{name}={value!r} is invalid", hint=f"give one of {', '.join(allowed)}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why two arrays stay separate, with names, URIs and rule."""

    arrays: tuple[str, ...]
    files: tuple[str, ...]
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """Unusable file, or an unusable variable of it if ``variable`` is set."""

    file: str
    variable: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A file left out of one array because it is an exact copy of another."""

    array: str
    file: str
    kept: str


def facet(attrs: Mapping[str, Any], name: str) -> str | None:
    """Return the value of a facet; of a CMIP5 table_id, the table name.

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


def facets_in(array: MasterArray, separate_by: Sequence[str]) -> dict[str, Any]:
    """Return the facets of an array, from its file's attributes or its own."""
    own, file = array.attrs, array.file_attrs
    return {name: facet(file if name in file else own, name) for name in separate_by if name in file or name in own}


#: The rules of `aggarray.open` unless others are given.
DEFAULT_RULES = Rules()
