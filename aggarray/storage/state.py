"""States of files: what shows that a file has changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aggarray.dataclass import NamedTuple, dataclass, field
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

    def copy(self) -> Versions:
        """Return a copy that can be extended."""
        return Versions(dict(self.states), dict(self.tags))

    def extend(self, other: Versions) -> None:
        """Add other versions; ChangedFileError for another version of a file."""
        for path, state in other.states.items():
            if self.states.setdefault(path, state) != state:
                raise changed(path)
        for path, tag in other.tags.items():
            if self.tags.setdefault(path, tag) != tag:
                raise changed(path)


#: Versions of files when a read that fetches the parts of a file one by one, as libraries do, first met them.
_first_versions: ContextVar[Versions | None] = ContextVar("aggarray_first_versions", default=None)


@contextmanager
def one_version() -> Iterator[Versions]:
    """Require one version of each file in a block; see `check_version`.

    Gives the versions that the outermost block has met.
    """
    met = _first_versions.get()
    if met is not None:
        yield met
        return
    token = _first_versions.set(met := Versions())
    try:
        yield met
    finally:
        _first_versions.reset(token)


def check_version(path: str, state: FileState) -> None:
    """Raise ChangedFileError for a file changed since this read first met it."""
    first = _first_versions.get()
    if first is not None and first.states.setdefault(path, state) != state:
        raise changed(path)
