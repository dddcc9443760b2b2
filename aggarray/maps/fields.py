"""Validation of single values, from arguments and dimension dictionaries.

Dimension dictionaries come from other programs and are not trusted. A `DimDictReader` reads the values of one dictionary by key
and notes each violation. It continues after a fault, so that all faults are found at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aggarray.dataclass import dataclass
from aggarray.errors import ProtocolError

#: The supported versions of the protocol, the newest first. Any patch level of 0.10 and 0.9 is accepted.
VERSIONS = ("0.10.0", "0.9.0")
NEWEST, OLD = VERSIONS
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)
_LARGEST = np.iinfo(np.int64).max

#: Records a fault: key (None for the dictionary itself), value, violated rule.
Note = Callable[[str | None, Any, str], None]


def version_of(version: Any) -> str:
    """Return the entry of `VERSIONS` for a version; ProtocolError for others.

    >>> version_of("0.9.3")
    '0.9.0'
    """
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        reason = f"invalid version {short_repr(version)}"
        raise ProtocolError(reason, hint=f"give text of the form 'major.minor.patch', such as '{NEWEST}'")
    for supported in VERSIONS:
        if supported.split(".")[:2] == list(match.groups())[:2]:
            return supported
    raise ProtocolError(f"unknown version {version!r}: only 0.9 and 0.10 are supported", hint="give one of them")


def short_repr(value: Any) -> str:
    """Return the repr of a value, or its type, in at most 60 characters."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # foreign code, or an integer with more digits than Python prints
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."


def as_integer(value: Any) -> int | None:
    """Return a Python or NumPy integer of at most 64 bits, None for others.

    Booleans give None.

    >>> as_integer(np.int16(3)), as_integer(True), as_integer(3.0), as_integer(2**63)
    (3, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return None
    return int(value) if -_LARGEST - 1 <= int(value) <= _LARGEST else None


def as_bool(value: Any) -> bool | None:
    """Return a Python or NumPy truth value, None for anything else."""
    return bool(value) if isinstance(value, bool | np.bool) else None


def as_integers(values: Any, what: str, labels: bool = False) -> np.ndarray:
    """Return integers as a new read-only int64 array of the same shape.

    Raises ProtocolError for other values. An empty array may have any dtype, because NumPy reads [] as floats. ``labels``:
    accept integers up to 2**64 - 1, as uint64 where int64 cannot hold them.
    """
    try:
        array = np.asarray(values, object if isinstance(values, list | tuple) else None)
    except (ValueError, TypeError, OverflowError) as error:
        raise ProtocolError(f"invalid {what} {short_repr(values)}: {error}", hint="give an array of integers") from error
    if array.dtype == object:  # a list: check each item, because NumPy would convert all of them to one type
        items = array.ravel().tolist()
        numbers = all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in items)
    else:
        numbers = array.size == 0 or array.dtype.kind in "iu"
    least, greatest = (int(array.min()), int(array.max())) if numbers and array.size else (0, 0)
    large = labels and least >= 0 and _LARGEST < greatest < 1 << 64
    if not numbers or not (large or -_LARGEST - 1 <= least <= greatest <= _LARGEST):
        raise ProtocolError(f"{what} {short_repr(values)} has dtype {array.dtype}", hint="give integers of at most 64 bits")
    try:
        result = array.astype(np.uint64 if large else np.int64) if array.size else np.zeros(array.shape, np.int64)
    except MemoryError as error:
        raise ProtocolError(f"{what}: {array.size} integers do not fit into memory") from error
    result.flags.writeable = False
    return result


def concatenate_labels(labels: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenate integer arrays without loss.

    The result is int64, uint64 where int64 cannot hold all values, and object where neither can. NumPy itself concatenates
    int64 and uint64 to floats.

    >>> concatenate_labels([np.array([2**63], "u8"), np.array([1])]).tolist()
    [9223372036854775808, 1]
    """
    if all(one.dtype == np.int64 for one in labels):
        return np.concatenate(labels)
    signed = any(one.dtype.kind != "u" and one.size and one.min() < 0 for one in labels)
    return np.concatenate([one.astype(object if signed else np.uint64) for one in labels])


def as_sizes(sizes: Any, what: str) -> tuple[int, ...]:
    """Return sizes of at least 0 as a tuple; ProtocolError for others."""
    try:
        values = tuple(sizes) if not isinstance(sizes, int | np.integer) else (sizes,)
    except TypeError as error:
        raise ProtocolError(f"invalid {what} {short_repr(sizes)}", hint="give integers, one per dimension") from error
    numbers = tuple(as_integer(v) for v in values)
    if any(n is None or n < 0 for n in numbers):
        raise ProtocolError(f"invalid {what} {short_repr(sizes)}", hint="give integers of at least 0, one per dimension")
    return tuple(n for n in numbers if n is not None)


def check_exported(values: Any) -> None:
    """Raise ProtocolError for an array that exports no buffer, such as times."""
    try:
        memoryview(values)
    except (ValueError, TypeError, BufferError) as error:
        hint = "export its fields one by one" if values.dtype.names else "use astype first"
        if values.dtype.kind in "mM":
            hint = "export view('int64'), the numbers that it stores"
        elif values.dtype.kind == "T":
            hint = "export offsets and UTF-8 bytes, those of aggarray.memory.Ragged.from_text(values)"
        raise ProtocolError(f"values of {values.dtype} cannot be exported: {error}", hint=hint) from error


def buffer_of(item: Any) -> np.ndarray:
    """Return an object with a buffer (PEP 3118) as an array without a copy.

    Raises ProtocolError where it has none.

    >>> buffer_of(b"abc").tolist()
    [97, 98, 99]
    """
    if isinstance(item, np.ndarray):
        check_exported(item)
        return np.asarray(item)
    try:
        # Through a memoryview, because NumPy reads bytes as text.
        exported = memoryview(item)
        try:
            return np.asarray(exported)
        except (ValueError, RuntimeError):
            # NumPy has no dtype for the format: use raw bytes of the same item size.
            return np.ndarray(exported.shape or (), f"V{exported.itemsize}", item)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise ProtocolError(f"{type(item).__name__} has no buffer: {error}", hint="give a NumPy array") from error


@dataclass(frozen=True, slots=True)
class DimDictReader:
    """Reader of one dimension dictionary that notes faults.

    ``version``: one of `VERSIONS`; ``extent``: the size of the buffer along the dimension, None where unknown.
    """

    values: Mapping[Any, Any]
    version: str
    extent: int | None
    note: Note

    def integer(self, key: str, least: int = 0, default: int | None = None) -> int | None:
        """Return an integer of at least ``least``; None after noting a fault."""
        if key not in self.values:
            if default is None:
                self.note(key, None, "the key is missing")
            return default
        number = as_integer(self.values[key])
        if number is None or number < least:
            self.note(key, self.values[key], f"must be an integer of at least {least}")
            return None
        return number

    def flag(self, key: str) -> bool:
        """Return a truth value: False if absent, or after noting a fault."""
        if key not in self.values:
            return False
        flag_value = as_bool(self.values[key])
        if flag_value is None:
            self.note(key, self.values[key], "must be True or False")
        return bool(flag_value)

    def pair(self, key: str) -> tuple[int, int] | None:
        """Return two integers >= 0 (default 0, 0); None after noting a fault."""
        value = self.values.get(key, (0, 0))
        numbers = [as_integer(v) for v in value] if isinstance(value, tuple | list) else []
        if len(numbers) != 2 or any(n is None or n < 0 for n in numbers):
            self.note(key, value, "must be a tuple of two integers of at least 0")
            return None
        return numbers[0] or 0, numbers[1] or 0

    def labels(self, key: str) -> np.ndarray | None:
        """Return a 1-d buffer of integers; None after noting a fault."""
        if key not in self.values:
            self.note(key, None, "the key is missing")
            return None
        value = self.values[key]
        try:
            buffer = value if self.version == OLD and isinstance(value, list) else buffer_of(value)
            if isinstance(buffer, np.ndarray) and buffer.dtype.kind == "O":
                raise ProtocolError("its elements are Python objects", hint="give an integer array, such as astype('int64')")
            labels = as_integers(buffer, key, labels=True)
        except ProtocolError as error:
            self.note(key, value, f"must be a buffer of integers: {error}")
            return None
        if labels.ndim != 1:
            self.note(key, value, f"must be one-dimensional, not of shape {labels.shape}")
            return None
        return labels

    def expect_extent(self, extent: int, why: str) -> None:
        """Note a fault if the buffer has another size than the dictionary states."""
        if self.extent is not None and self.extent != extent:
            self.note("buffer", self.extent, f"the buffer must have size {extent} along the dimension: {why}")

    def refuse(self, *keys: str) -> None:
        """Note keys that the distribution type does not have."""
        for key in keys:
            value = self.values.get(key)
            is_zero_pair = isinstance(value, tuple | list) and [as_integer(v) for v in value] == [0, 0]
            if value is not None and as_bool(value) is not False and not is_zero_pair:
                dist_type = short_repr(self.values.get("dist_type"))
                self.note(key, value, f"has no meaning for dist_type {dist_type} in {self.version}")
