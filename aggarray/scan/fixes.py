"""`Fix`: a declared repair of the metadata of files.

A fix is a value. `aggarray.scan.repairs` applies it to what a scan has found in a file; the file stays as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from aggarray.cf.frozen import FrozenDict
from aggarray.dataclass import dataclass
from aggarray.errors import AggregationError, UnitsError, printable
from aggarray.formats.base import Attributes
from aggarray.scan.fix_values import value_fault

#: A glob on the path, or values of attributes of the file.
Condition: TypeAlias = str | FrozenDict[Any]

#: Characters of patterns.
_MAGIC = re.compile(r"[*?[]")
#: Longest shift of times, in any unit: the range of integers of 64 bits.
_LONGEST = 1 << 63
_CHANGES = "set, delete, rename, shift_time or drop"


@dataclass(frozen=True, slots=True, repr=False)
class Fix:
    """A repair of metadata, applied to what a scan finds, never to the files.

    ``where``: the files, as a glob on the path (``*`` stays within a name, ``**`` does not; a relative one matches the end of
    the path), as {attribute: value} of the file, or as a list of such conditions, which all must hold. A value is a number, a
    text or a pattern, or a list of these. None: every file. ``variable``: a name, a path with slashes, or a pattern of
    these, such as ``*_flag``; a name without a group means the variables of this name in all groups. None: the file. ``set``:
    {attribute: value} of the variable, or of the file. ``delete``: names of attributes. ``rename``: the new name of the
    variable, of the dimension of that name, or of both; or {old: new}, all at once: variables and dimensions of the file,
    otherwise its attributes; with a ``variable``, its attributes and its dimensions. ``shift_time``: (number, units), added to
    the reference times of the variable and its bounds; without a ``variable``, to those of the time coordinates. ``drop``:
    leave the variable out. ``note``: why, and the source. ``optional``: a check does not report the fix if it matches no file.

    One fix deletes, renames attributes, sets, shifts, and renames variables, in this order. Raises AggregationError for
    invalid or contradictory values: calendars, units that UDUNITS does not know, ``scale_factor`` of 0. What contradicts the
    type of a variable raises it when the file is opened.

    >>> Fix(variable="tas", set={"units": "K"}, where="tas_*.nc")
    Fix(where='tas_*.nc', variable='tas', set={'units': 'K'})
    """

    where: Any = None
    variable: str | None = None
    set: Mapping[str, Any] | None = None
    delete: Sequence[str] = ()
    rename: str | Mapping[str, str] | None = None
    shift_time: tuple[float, str] | None = None
    drop: bool = False
    note: str = ""
    optional: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        if self.variable is not None:
            _check_variable(self.variable)
        put(self, "where", _conditions(self.where))
        put(self, "set", None if self.set is None else _attributes(self.set))
        put(self, "delete", _names(self.delete))
        put(self, "rename", _new_names(self.rename, self.variable))
        put(self, "shift_time", None if self.shift_time is None else _duration(self.shift_time))
        for name in ("drop", "optional"):
            if not isinstance(getattr(self, name), bool):
                raise _invalid(name, getattr(self, name), "give True or False")
        if not isinstance(self.note, str):
            raise _invalid("note", self.note, "give a text")
        self._check_changes()

    def _check_changes(self) -> None:
        """Raise AggregationError unless the changes make sense together."""
        changes = [name for name in ("set", "delete", "rename", "shift_time") if getattr(self, name)]
        if self.drop and (changes or self.variable is None):
            hint = "give the variable" if self.variable is None else f"leave out {', '.join(changes)}"
            raise AggregationError(f"drop=True of {self!r} is invalid", hint=hint)
        if not changes and not self.drop:
            raise AggregationError(f"{self!r} changes nothing", hint=f"give {_CHANGES}")
        if both := [name for name in self.delete if name in (self.set or {})]:
            raise AggregationError(f"{self!r} deletes and sets {both[0]!r}", hint="set it only: this replaces a value")

    def __repr__(self) -> str:
        texts = [f"{name}={value!r}" for name, value in self.plain().items() if name not in ("note", "optional")]
        return f"Fix({', '.join(texts)})"

    def plain(self) -> dict[str, Any]:
        """Return the values that are not the default, by name, for JSON and TOML."""
        values = {name: getattr(self, name) for name in FIELDS}
        return {name: _plain(value) for name, value in values.items() if value is not None and value is not False and value}

    def matches(self, uri: str, attrs: Attributes) -> bool:
        """Return whether a file of these attributes fulfils ``where``."""
        return self.matches_path(uri) and all(
            name in attrs and _is_one_of(attrs[name], value)
            for condition in self.conditions
            if not isinstance(condition, str)
            for name, value in condition.items()
        )

    def matches_path(self, uri: str) -> bool:
        """Return whether a path fulfils the globs of ``where``."""
        globs = (condition for condition in self.conditions if isinstance(condition, str))
        return all(glob == uri or _pattern(glob).fullmatch(uri) is not None for glob in globs)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of ``where``."""
        if self.where is None:
            return ()
        return self.where if isinstance(self.where, tuple) else (self.where,)

    def concerns(self, name: str) -> bool:
        """Return whether ``variable`` means a variable of a file, given by path."""
        if self.variable is None:
            return False
        wanted = self.variable if "/" not in self.variable else f"/{self.variable.removeprefix('/')}"
        if wanted in (f"/{name}", name.rpartition("/")[2]):
            return True
        return _MAGIC.search(wanted) is not None and _pattern(wanted).fullmatch(f"/{name}") is not None


#: The values of a fix, which are the keys of a table ``[[fix]]``.
FIELDS = ("where", "variable", "set", "delete", "rename", "shift_time", "drop", "note", "optional")


def make_fix(fields: Mapping[str, Any]) -> Fix:
    """Return the fix of a table; raise AggregationError for unknown keys."""
    from aggarray.errors import names_hint

    for name in fields:
        if name not in FIELDS:
            raise AggregationError(f"unknown key {name!r}", hint=names_hint(name, FIELDS, "the keys are"))
    return Fix(**fields)


def _invalid(name: str, value: Any, hint: str) -> AggregationError:
    return AggregationError(printable(f"{name}={value!r} of a fix is invalid"), hint=hint)


def _check_variable(variable: Any) -> None:
    if not _is_name(variable):
        raise _invalid("variable", variable, "give a name, or a pattern such as '*_flag'")
    try:
        _pattern(variable)
    except re.error as error:
        raise _invalid("variable", variable, f"correct the pattern: {error}") from error


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip("/")) and "\0" not in value


def _plain(value: Any) -> Any:
    """Return a value without the types of this module, for texts."""
    if isinstance(value, FrozenDict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _conditions(where: Any) -> Any:
    if where is None:
        return None
    several = isinstance(where, list | tuple)
    conditions = tuple(map(_condition, where if several else [where]))
    if not conditions:
        raise _invalid("where", where, "give None for every file")
    return conditions if len(conditions) > 1 else conditions[0]


def _condition(where: Any) -> Condition:
    if isinstance(where, Mapping):
        if not where or not all(isinstance(name, str) and name for name in where):
            raise _invalid("where", where, "give {attribute: value}")
        return FrozenDict({name: _value("where", name, value) for name, value in where.items()})
    try:
        glob = os.fspath(where)
    except TypeError:
        glob = None
    if not isinstance(glob, str) or not glob or "\0" in glob:
        raise _invalid("where", where, "give a glob on the path, or {attribute: value}")
    try:
        _pattern(glob)
    except re.error as error:
        raise _invalid("where", where, f"correct the glob: {error}") from error
    is_relative_to_here = glob.startswith(("./", "../", "~"))
    return os.path.abspath(os.path.expanduser(glob)) if is_relative_to_here else glob


def _value(name: str, key: str, value: Any) -> Any:
    """Return the value of an attribute as an immutable one."""
    if isinstance(value, np.ndarray):
        value = list(value.reshape(-1)) if value.ndim else value[()]
    if isinstance(value, list | tuple):
        items = tuple(_value(name, key, item) for item in value)
        is_plain = all(isinstance(item, str) for item in items) or not any(isinstance(item, str | tuple) for item in items)
        if items and (is_plain or name == "where"):
            return items
    elif isinstance(value, np.str_ | str):
        return str(value)
    elif isinstance(value, int | float | np.number) and not isinstance(value, bool | np.complexfloating):
        if not isinstance(value, int) or -(1 << 63) <= value < 1 << 64:
            return value
        raise _invalid(name, {key: value}, "give an integer of at most 64 bits, or a floating-point number")
    raise _invalid(name, {key: value}, "give a text, a number, or a list of them; delete=[...] removes an attribute")


def _attributes(attrs: Any) -> FrozenDict[Any]:
    if not isinstance(attrs, Mapping) or not all(isinstance(name, str) and name and "\0" not in name for name in attrs):
        raise _invalid("set", attrs, "give {attribute: value}")
    made = FrozenDict({name: _value("set", name, value) for name, value in attrs.items()})
    for name, value in made.items():
        if (fault := value_fault(name, value)) is not None:
            raise _invalid("set", {name: value}, fault)
    return made


def _names(names: Any) -> tuple[str, ...]:
    made = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else (None,)
    if not all(isinstance(name, str) and name for name in made):
        raise _invalid("delete", names, "give a list of names")
    return made


def _new_names(rename: Any, variable: str | None) -> Any:
    if rename is None:
        return None
    if isinstance(rename, str) and rename:
        if variable is None:
            raise _invalid("rename", rename, "give the variable or dimension to rename, or {old: new}")
    elif not isinstance(rename, Mapping) or not rename:
        raise _invalid("rename", rename, "give a new name, or {old: new}")
    else:
        rename = FrozenDict(rename)
    new = [rename] if isinstance(rename, str) else [*rename.values()]
    if not all(_is_name(name) for name in (rename if isinstance(rename, FrozenDict) else ())):
        raise _invalid("rename", rename, "give {old: new}, both texts")
    if not all(_is_name(name) and re.search(r"[\s/]", name) is None for name in new):
        raise _invalid("rename", rename, "a new name is a text without blanks and slashes")
    if len({*new}) < len(new):
        raise _invalid("rename", rename, "two things cannot have the same new name")
    return rename


def _duration(shift: Any) -> tuple[float, str]:
    from aggarray.cf.units.calendars import shifted_epoch

    hint = "give a number and units, such as (12, 'hours')"
    if not isinstance(shift, list | tuple) or len(shift) != 2:
        raise _invalid("shift_time", shift, hint)
    number, units = shift
    is_number = isinstance(number, int | float | np.number) and not isinstance(number, bool)
    if not is_number or not abs(number) <= _LONGEST:
        raise _invalid("shift_time", shift, hint)
    try:
        shifted_epoch("days since 2000-01-01", None, 0, str(units))
    except UnitsError as error:
        raise _invalid("shift_time", shift, f"{error}") from error
    return number.item() if isinstance(number, np.number) else number, str(units)


def _is_one_of(own: Any, value: Any) -> bool:
    """Return whether an attribute has a value, or one of several."""
    if isinstance(value, tuple):
        return _is_equal(own, value) or any(_is_equal(own, item) for item in value)
    return _is_equal(own, value)


def _is_equal(own: Any, value: Any) -> bool:
    if isinstance(value, str):
        from fnmatch import fnmatchcase

        return isinstance(own, str) and (own == value or fnmatchcase(own, value))
    try:
        one, other = np.asarray(own).reshape(-1), np.asarray(value).reshape(-1)
    except ValueError:
        return False
    are_numbers = [values.dtype.kind in "iuf" for values in (one, other)]
    return one.shape == other.shape and are_numbers[0] == are_numbers[1] and bool((one == other).all())


def is_absolute(glob: str) -> bool:
    """Return whether a glob begins with the root, or is an address."""
    return glob.startswith("/") or "://" in glob


@lru_cache(maxsize=256)
def _pattern(glob: str) -> re.Pattern[str]:
    """Return the expression of a glob, of the end of a path unless absolute.

    >>> [bool(_pattern(glob).fullmatch("/data/r1/tas_1.nc")) for glob in ("tas_*.nc", "r[12]/*", "/data/*.nc", "data/**")]
    [True, True, False, True]
    """
    parts, at = [], 0
    glob = re.sub(r"(\*\*/)+", "**/", glob)
    while at < len(glob):
        if glob.startswith("**/", at):
            parts.append("(?:.*/)?")
            at += 3
        elif glob.startswith("**", at):
            parts.append(".*")
            at += 2
        elif match := re.compile(r"\[(!?)(\]?[^\]]*)\]").match(glob, at):
            escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", match[2])
            parts.append(f"[{'^/' if match[1] else ''}{escaped}]")
            at = match.end()
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(glob[at], re.escape(glob[at])))
            at += 1
    return re.compile(("" if is_absolute(glob) else "(?:.*/)?") + "".join(parts), re.DOTALL)
