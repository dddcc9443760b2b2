"""What is a target? A function that takes bytes, lets through what aggarray raises on purpose, and nothing else.

Whatever else comes out of it is a finding: another exception, a property that does not hold (`check`), a crash, more memory or
time than a small input is worth.
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

#: Arrays of more elements are not read: what is claimed may be as large as it likes.
MOST_READ = 1 << 14

#: Makes other bytes of bytes: data, the most there may be of it, a random number.
Mutator = Callable[[bytes, int, int], bytes]


@dataclass(frozen=True, slots=True)
class Target:
    """A reader under test.

    ``run`` takes bytes, and tells whether they were accepted; ``seeds`` makes valid inputs, to begin with; ``mutate`` None:
    the fuzzer's own mutations of bytes; ``longest``: bytes of an input; ``trees``: inputs are JSON, parts of which may be put
    into others.
    """

    name: str
    run: Callable[[bytes], bool]
    seeds: Callable[[], Mapping[str, bytes]]
    mutate: Mutator | None = None
    longest: int = 1 << 14
    trees: bool = False


class BrokenError(Exception):
    """A property that does not hold."""


def check(holds: bool, what: str) -> None:
    """Raise BrokenError unless a property holds."""
    if not holds:
        raise BrokenError(what)


@contextmanager
def refusing() -> Iterator[list[AggarrayError]]:
    """Take the errors that aggarray raises on purpose; the list that is given has the one that came."""
    found: list[AggarrayError] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield found
        except AggarrayError as error:
            found.append(error)


@functools.cache
def home() -> Path:
    """Return the folder of this process in which targets write; it goes when the process ends."""
    found = Path(tempfile.mkdtemp(prefix="aggarray-fuzz-"))
    atexit.register(shutil.rmtree, found, ignore_errors=True)
    return found


_numbers = itertools.count()


@contextmanager
def written(content: bytes | Mapping[str, bytes], ending: str) -> Iterator[str]:
    """Write a file, or a folder of files by path, under a name that was never used: what is kept of files goes by it."""
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
    """Read an array: all of it where it is small, else its two ends, and hold shape and dtype against what it says."""
    size = 1
    for n in array.shape:
        size *= n
    keys: list[Any] = [...] if size <= MOST_READ else [(0,) * len(array.shape), (-1,) * len(array.shape)]
    for key in keys:
        found = array.read(key, masked=True)
        wanted = array.shape if key is ... else ()
        if found.__class__.__name__ != "Ragged":
            check(found.shape == wanted and found.dtype == array.dtype, f"{found.shape} {found.dtype} of {array!r:.200}")
