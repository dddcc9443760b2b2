"""States of files: what shows that a file has changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import NamedTuple

from aggarray.dataclass import dataclass
from aggarray.errors import ChangedFileError

#: State of a file when it was scanned: size in bytes, modification time in nanoseconds, checksum of its head and tail.
Stamp = tuple[int, int, int]


class FileState(NamedTuple):
    """State of a file or object: modification time in ns, bytes, inode.

    The inode of a remote object is a number of its entity tag. Two states are equal if the file has not changed in between.
    """

    mtime_ns: int
    size: int
    inode: int
    folder: bool = False


def changed(path: str) -> ChangedFileError:
    """Return the error of a file or object that has changed."""
    return ChangedFileError("changed while it was read", path=path, hint="read it again, or open the files anew")


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions by path, one for each file of a read.

    ``states``: of local files, and of remote objects whose state was requested; ``tags``: entity tags from answers.
    """

    states: dict[str, FileState] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "Versions":
        """Return a copy that can be extended."""
        return Versions(dict(self.states), dict(self.tags))


#: States of files when a read through libraries, which fetch the parts of a file one by one, first met them, by path.
_first_states: ContextVar[dict[str, FileState] | None] = ContextVar("aggarray_first_states", default=None)


@contextmanager
def one_version() -> Iterator[None]:
    """Require one version of each file in a block; see `check_version`."""
    token = _first_states.set({}) if _first_states.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _first_states.reset(token)


def check_version(path: str, state: FileState) -> None:
    """Raise ChangedFileError for a file changed since this read first met it."""
    first = _first_states.get()
    if first is not None and first.setdefault(path, state) != state:
        raise changed(path)
