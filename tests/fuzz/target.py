"""Fuzz targets: functions that take bytes and handle only the errors that aggarray raises deliberately.

Everything else is a finding: another exception, a violated property (`check`), a crash, excessive memory or time.
"""

import atexit
import functools
import itertools
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggarray.errors import AggarrayError

#: Arrays of more elements are not read: a small input may define a large array.
MOST_READ = 1 << 14

#: Mutates bytes: data, maximum length, random seed.
Mutator = Callable[[bytes, int, int], bytes]


@dataclass(frozen=True, slots=True)
class Target:
    """A reader under test.

    ``run`` takes bytes and returns whether they were accepted; ``seeds`` returns valid inputs; ``mutate``: None for those
    of the fuzzer; ``longest``: maximum length of an input in bytes; ``trees``: inputs are JSON, whose parts may be exchanged.
    """

    name: str
    run: Callable[[bytes], bool]
    seeds: Callable[[], Mapping[str, bytes]]
    mutate: Mutator | None = None
    longest: int = 1 << 14
    trees: bool = False


class BrokenError(Exception):
    """A violated property."""


def check(holds: bool, what: str) -> None:
    """Raise BrokenError unless a property holds."""
    if not holds:
        raise BrokenError(what)


@contextmanager
def refusing() -> Iterator[list[AggarrayError]]:
    """Catch errors that aggarray raises deliberately; yields a list that receives the error."""
    result: list[AggarrayError] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield result
        except AggarrayError as error:
            result.append(error)


@functools.cache
def home() -> Path:
    """Return the folder of this process for targets; removed at the end of the process."""
    result = Path(tempfile.mkdtemp(prefix="aggarray-fuzz-"))
    atexit.register(shutil.rmtree, result, ignore_errors=True)
    return result


_numbers = itertools.count()


@contextmanager
def written(content: bytes | Mapping[str, bytes], ending: str) -> Iterator[str]:
    """Write a file, or a folder of files by path, under a unique name, since caches are keyed by path."""
    path = home() / f"n{next(_numbers)}{ending}"
    try:
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            for name, data in content.items():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(data)
        yield str(path)
    finally:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def read_some(array: Any) -> None:
    """Read an array, or the two ends of a large one, and check shape and dtype."""
    size = 1
    for n in array.shape:
        size *= n
    keys: list[Any] = [...] if size <= MOST_READ else [(0,) * len(array.shape), (-1,) * len(array.shape)]
    for key in keys:
        result = array.read(key, masked=True)
        expected = array.shape if key is ... else ()
        if result.__class__.__name__ != "Ragged":
            check(result.shape == expected and result.dtype == array.dtype, f"{result.shape} {result.dtype} of {array!r:.200}")
