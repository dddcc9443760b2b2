"""States of files: what shows that a file has changed."""

from dataclasses import dataclass, field
from typing import NamedTuple


class FileState(NamedTuple):
    """State of a file or object: modification time in ns, bytes, inode (of a remote object: a number of its entity tag).

    Two states are equal if the file has not changed in between.
    """

    mtime_ns: int
    size: int
    inode: int
    folder: bool = False


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of the files of one read, by path: everything that it takes from a file must be of one version.

    ``states``: of local files, and of remote objects whose state was requested; ``tags``: entity tags from answers.
    """

    states: dict[str, FileState] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "Versions":
        """Return a copy that can be extended."""
        return Versions(dict(self.states), dict(self.tags))
