"""Bounded cache of open file handles, safe with threads and forks."""

from __future__ import annotations

import atexit
import os
from _thread import allocate_lock
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from aggarray.dataclass import dataclass, replace
from aggarray.errors import ChangedFileError, FormatError, MissingFileError
from aggarray.options import get_options
from aggarray.partition.matrix import References
from aggarray.storage.access import Access
from aggarray.storage.byte_source import close_sources
from aggarray.storage.files import resized, same_time, stat_file, state_path
from aggarray.storage.state import FileState, Stamp, check_version

if TYPE_CHECKING:
    from aggarray.formats.base import Handle, Structure, Variable
    from aggarray.partition.external import ExternalVariable


@dataclass(slots=True)
class _Lease:
    handle: Handle
    state: FileState
    users: int = 0


_ANEW = "open the files anew"
#: Context of files without values in others.
_NOTHING = nullcontext()
#: Files remembered whose time has changed, but nothing else.
_REMEMBERED = 100_000


class OpenFiles:
    """Bounded cache of open files.

    It evicts the least recently used file that is not being read. A file that was replaced or changed since it was opened is
    opened anew. Handles that are not `lasting` close with their last user.
    """

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._leases: OrderedDict[str, _Lease] = OrderedDict()
        self._process = os.getpid()
        self._at_exit = False
        self._same: dict[str, tuple[tuple[int, ...], Stamp]] = {}
        if hasattr(os, "register_at_fork"):
            # promise: open-files-lock-fork
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        # A thread that does not exist in the child may have held the lock.
        self._lock = allocate_lock()

    @contextmanager
    def use(self, path: str, stamp: Stamp | None = None) -> Iterator[Handle]:
        """Yield the handle of a file for the length of a block.

        Raises MissingFileError or FormatError if the file does not open. ``stamp``: the file's stamp when it was scanned;
        ChangedFileError if it has changed, or changes meanwhile.
        """
        lease = self._take(path, stamp)
        try:
            check_version(path, lease.state)
            yield lease.handle
            # promise: changed-during-library-read
            if self.state(path, None) != lease.state:
                # Libraries return zeros for truncated bytes.
                raise ChangedFileError("changed while it was read", path=path, hint=f"read it again, or {_ANEW}")
        finally:
            with self._lock:
                lease.users -= 1
                current = self._leases.get(path) is lease
                if not lease.users and not (current and lease.handle.lasting):
                    if current:
                        del self._leases[path]
                    lease.handle.close()
                self._close_unused(get_options().open_files)

    def state(self, path: str, stamp: Stamp | None) -> FileState:
        """Return the state of a file. Raises as `use` does."""
        try:
            status = stat_file(path)
            if status.folder:
                # The state of a folder does not change with its files.
                status = stat_file(state_path(path))
        except FormatError as error:
            self.forget(path)
            if isinstance(error, MissingFileError):
                error.hint = "restore it, or open with missing='fill'"
            raise
        # promise: changed-since-open
        if stamp is not None and status[:2] != (stamp[1], stamp[0]):
            self._check(path, status, stamp)
        return status

    def _take(self, path: str, stamp: Stamp | None) -> _Lease:
        state = self.state(path, stamp)
        with self._lock:
            # promise: fork-reopens-files
            if self._process != os.getpid():
                # After a fork the handles belong to the parent: they are not closed here.
                self._leases, self._process = OrderedDict(), os.getpid()
            lease = self._leases.pop(path, None)
            if lease is not None and lease.state == state:
                self._leases[path] = lease
                lease.users += 1
                return lease
            _close_unused(lease)
        from aggarray.formats import open_file

        fresh = _Lease(open_file(path), state, 1)
        with self._lock:
            if not self._at_exit:
                # Modules may be gone when handles close at interpreter exit.
                atexit.register(self.close)
                self._at_exit = True
            # Another thread may have opened it at the same time: the later one is cached.
            _close_unused(self._leases.pop(path, None))
            self._leases[path] = fresh
        return fresh

    def _check(self, path: str, state: tuple[int, ...], stamp: Stamp) -> None:
        """Raise ChangedFileError unless a file is the scanned one, or its copy."""
        if self._same.get(path) == (state, stamp):
            return
        from aggarray.formats import checksum

        stamped_path = state_path(path)
        status = stat_file(stamped_path)
        change = resized(status, stamp[0])
        if change:
            raise ChangedFileError(change, path=path, hint=_ANEW)
        if not same_time(path, status.mtime_ns, stamp[1]) and checksum(stamped_path) != stamp[2]:
            raise ChangedFileError("changed since it was scanned: it was written to", path=path, hint=_ANEW)
        if len(self._same) > _REMEMBERED:
            self._same.clear()
        self._same[path] = (state, stamp)

    def forget(self, path: str) -> None:
        """Drop a file from the cache; its handle closes with its last user."""
        with self._lock:
            _close_unused(self._leases.pop(path, None))

    def _close_unused(self, most: int, chosen: Callable[[str], bool] | None = None) -> None:
        """Close unused files, least recently used first, until ``most`` are open."""
        surplus = len(self._leases) - most
        unused = [p for p, lease in self._leases.items() if lease.users == 0 and (chosen is None or chosen(p))]
        # promise: open-files-limit
        for path in unused[: max(0, surplus)]:
            self._leases.pop(path).handle.close()

    def close(self, chosen: Callable[[str], bool] | None = None) -> None:
        """Close all files, or the chosen ones, that are not being read."""
        with self._lock:
            self._close_unused(0, chosen)


def _close_unused(lease: _Lease | None) -> None:
    if lease is not None and not lease.users:
        lease.handle.close()


_files = OpenFiles()
#: Return the state of a file; see `OpenFiles.state`.
file_state = _files.state


def close_files(uris: Collection[str] | None = None) -> None:
    """Close the files kept open for later reads, such as before deletion.

    ``uris``: only these files, and those within these folders and stores.
    """
    chosen = None if uris is None else partial(_is_within, uris)
    _files.close(chosen)
    close_sources(chosen)


def open_paths() -> set[str]:
    """Return the paths of the files kept open, and of the folders above them."""
    paths: set[str] = set()

    def note(path: str) -> bool:
        while path and path not in paths:
            paths.add(path)
            path = path.rpartition("/")[0]
        return False  # it stays open

    _files.close(note)
    close_sources(note)
    return paths


def _is_within(uris: Collection[str], path: str) -> bool:
    while path not in uris and path:
        path = path.rpartition("/")[0]
    return bool(path)


@contextmanager
def opened(references: References, row: int, access: Access) -> Iterator[Handle]:
    """Yield the open file of a sub-array, checked for access and changes."""
    from aggarray.formats.flattened import flat_handle

    uri = str(references.uri_of(row))
    access.check(uri)
    variable = references.variables[int(references.variable[row])]
    others = _NOTHING if references.external is None else _external_files_checked(references, row, access)
    with others, _files.use(uri, references.stamp_of(row)) as handle:
        known = flat_handle(handle, variable)
        if access.roots is not None or getattr(handle, "has_external_coordinates", False):
            # Handles of other packages may lack the method.
            external_files = getattr(known, "external_files", lambda variable: ())
            for path in external_files(variable):
                access.check_named(path, uri)
        yield known


@contextmanager
def _external_files_checked(references: References, row: int, access: Access) -> Iterator[None]:
    """Require that other files with values of a sub-array do not change.

    Raises MissingFileError or ChangedFileError: the library would return the fill value.
    """
    from aggarray.partition.external import external_of

    uri, others = str(references.uri_of(row)), external_of(references, row)
    for other in others:
        access.check_named(other.uri, uri)
    # promise: virtual-source-states
    states = [_state_of_external(other) for other in others]
    yield
    for other, state in zip(others, states, strict=True):
        if _state_of_external(other) != state:
            raise ChangedFileError("changed while it was read", path=other.uri, hint=f"read it again, or {_ANEW}")


def _state_of_external(other: ExternalVariable) -> FileState | None:
    """Return the state of an external file, None if it still does not exist."""
    if other.stamp is not None:
        return _files.state(other.uri, other.stamp)
    if os.path.lexists(other.uri):
        raise ChangedFileError("did not exist when it was scanned", path=other.uri, hint=_ANEW)
    return None


def with_external_coordinates(structure: Structure, access: Access) -> Structure:
    """Return a structure with the coordinates that lie in other files.

    IndexFileError for a file that must not be read, MissingFileError and FormatError.
    """
    from aggarray.formats.base import scan_values

    wanted = {
        v.name
        for v in structure.variables
        if v.values is None and (structure.has_external_coordinates or v.name in structure.external_files)
    }
    wanted &= scan_values(structure.variables) if wanted else set()
    return with_coordinates(structure, wanted, access)


def with_coordinates(structure: Structure, wanted: Collection[str], access: Access) -> Structure:
    """Return a structure with values of some variables, read from its file.

    Raises the errors of `with_external_coordinates`.
    """
    if not wanted:
        return structure
    from aggarray.formats.base import fixed_names, full_box, with_values

    stored = fixed_names(structure)[0]
    with _files.use(structure.uri, structure.stamp) as handle:

        def values_of(variable: Variable) -> np.ndarray:
            name = stored.get(variable.name, variable.name)
            for path in handle.external_files(name):
                access.check_named(path, structure.uri)
            return handle.read(name, full_box(variable.shape))

        return replace(structure, variables=with_values(structure.variables, values_of, wanted))
