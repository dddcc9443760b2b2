"""Target of an extract: the folder in which it is made.

The folder is named after the result, with ".part". Its content, and the fingerprint of the extract, survive a killed process.
One process at a time works in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import product

from aggarray.errors import LIBRARY_ERRORS, AggregationError
from aggarray.formats.base import LIBRARY_LOCK, h5py_file
from aggarray.index import saving
from aggarray.storage.atomic import create_private, flush, keep_mode, put_in_place
from aggarray.storage.locks import Lock, LockError, finish_uninterrupted, locked
from aggarray.storage.urls import carrier

#: The global attribute that holds the fingerprint of a result.
ATTRIBUTE = "aggarray_extract"
_MARK = "extract.json"
_BEGIN = b'{"fingerprint": "'
#: Between the fingerprint and the digest of a mark.
_AFTER = " after "
_OTHER_NAME = "give another name"


class ExtractTarget:
    """Path and fingerprint of a result, and the folder ``part`` of its run.

    ``store``: the folder of the chunks; ``spare``: that of incomplete files; ``file``: a netCDF file made of the chunks.
    ``mark``: what the chunks depend on: the fingerprint, and what `append_to` adds.
    """

    def __init__(self, path: str, fingerprint: str) -> None:
        self.path, self.fingerprint, self.part, self.mark = path, fingerprint, f"{path}.part", fingerprint
        self.store, self.spare, self.file = (os.path.join(self.part, name) for name in ("store", "spare", "file.nc"))

    def append_to(self, digest: str) -> None:
        """Keep only chunks for an append to the extract of a digest."""
        self.mark = f"{self.fingerprint}{_AFTER}{digest}"

    def check(self, exists: str) -> None:
        """Raise AggregationError if something exists that must not be replaced."""
        if not os.path.isdir(os.path.dirname(self.path)):
            raise AggregationError(f"no folder {os.path.dirname(self.path)}", path=self.path, hint="make it first")
        if exists == "raise" and os.path.lexists(self.path):
            raise AggregationError("already exists", path=self.path, hint="give another name, or pass exists='overwrite'")
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            if os.path.lexists(self.path) and (problem := self._conflict(exists)):
                raise AggregationError(problem, path=self.path, hint=_OTHER_NAME)

    def _conflict(self, exists: str) -> str | None:
        """Return why an existing file must not be replaced, None if it may be."""
        is_folder, needs_folder = os.path.isdir(self.path), self.path.lower().endswith(".zarr")
        is_store = any(os.path.isfile(os.path.join(self.path, name)) for name in ("zarr.json", ".zgroup"))
        if is_folder and not os.path.islink(self.path) and not is_store and os.listdir(self.path):
            return "is a folder and not a Zarr store"
        if is_folder != needs_folder:
            return "is a folder" if is_folder else "is a file and not a Zarr store"
        if saving.may_be_replaced(self.path) and os.path.getsize(self.path):
            return "is an index"
        if exists == "update" and stored_fingerprint(self.path) is None:
            return "was not extracted by aggarray"
        return None

    def swept(self) -> bool:
        """Return whether the result is complete, and remove its folder."""
        if not self._is_done():
            return False
        try:
            with self._locked():
                if done := self._is_done():
                    self._sweep()
        except (AggregationError, OSError):
            return False  # another process is writing, or the folder is read-only
        return done

    def _is_done(self) -> bool:
        """Return whether the result is complete and the folder only a remainder."""
        if os.path.islink(self.part) or not os.path.isdir(self.part) or stored_fingerprint(self.path) != self.fingerprint:
            return False
        with contextlib.suppress(FileNotFoundError):
            mark = _read_mark(os.path.join(self.part, _MARK)) or ""
            return mark.partition(_AFTER)[0] == self.fingerprint or not os.listdir(self.part)
        return False

    def _sweep(self) -> None:
        """Remove the folder, its mark last: the mark shows a complete result."""
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(self.part), key=_MARK.__eq__):
                shutil.rmtree(os.path.join(self.part, name), ignore_errors=True)
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.part, name))
            os.rmdir(self.part)

    @contextlib.contextmanager
    def held(self) -> Iterator[Lock]:
        """Lock and prepare the folder for a block; keep chunks of its fingerprint."""
        try:
            with self._locked() as lock:
                self._take_over()
                yield lock
        except OSError as error:
            if error.strerror is None or isinstance(error, AggregationError):
                raise
            where = error.filename if str(error.filename).startswith(self.part) else self.path
            hint = "make space or change the permissions, and run it again: it resumes here"
            raise AggregationError(f"cannot be written: {error.strerror}", path=where, hint=hint) from error

    def _take_over(self) -> None:
        """Make or clear the folder; raise AggregationError for other content."""
        # promise: extract-symlink
        if os.path.islink(self.part):
            raise AggregationError("is a symbolic link", path=self.part, hint="remove it, or give another name")
        if not os.path.lexists(self.part):
            create_private(self.part, self.path, folder=True)
        names = set(os.listdir(self.part))
        linked = sorted(n for n in names if os.path.islink(os.path.join(self.part, n)))
        marked = _read_mark(os.path.join(self.part, _MARK)) is not None
        # A run that was stopped before it wrote its mark leaves at most a part of the mark (earlier versions: an empty lock).
        begun = {n for n in names & {"lock", _MARK} if _is_begun(os.path.join(self.part, n), _BEGIN if n == _MARK else b"")}
        if linked or not names <= ({"lock", _MARK, "store", "spare", "file.nc"} if marked else begun):
            raise AggregationError("is a folder with other content", path=self.part, hint="remove it, or give another name")
        shutil.rmtree(self.spare, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.file)
        if _read_mark(os.path.join(self.part, _MARK)) != self.mark:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.store)  # chunks of another extract must not stay
            with open(os.path.join(self.part, _MARK), "w") as mark:
                json.dump({"fingerprint": self.mark}, mark)
        os.makedirs(self.store, exist_ok=True)
        os.makedirs(self.spare)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Lock]:
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(locked(self.path, wait=False))
            except BlockingIOError as error:
                raise AggregationError("another process is writing it", path=self.path, hint="wait until it ends") from error
            except LockError as error:
                raise AggregationError(f"cannot be written: {error.what}", path=self.path, hint=error.hint) from error
            yield lock

    def finish(self, made: str, lock: Lock) -> None:
        """Move the result into place and remove its folder."""
        keep_mode(self.path, made)
        flush(made)
        if os.path.isdir(self.path):
            # The replaced store must never be taken for chunks of the result: it goes into the spare folder.
            whole = os.path.join(self.spare, "whole")
            os.rename(made, whole)
            # promise: extract-own-chunks
            made = whole
        self._check_lock(lock)
        put_in_place(made, self.path)
        flush(os.path.dirname(self.path))
        finish_uninterrupted(self._sweep)

    def finish_in_place(self, place: Callable[[], None], lock: Lock) -> None:
        """Extend the result by a function, and remove its folder."""
        self._check_lock(lock)
        place()
        flush(self.path)
        finish_uninterrupted(self._sweep)

    def _check_lock(self, lock: Lock) -> None:
        try:
            lock.check()
        except LockError as error:
            raise AggregationError(f"cannot be written: {error.what}", path=self.path, hint=error.hint) from error


def check_not_source(path: str, sources: Iterable[str]) -> None:
    """Raise AggregationError if a result replaces, encloses or is in a source."""
    targets = {os.path.abspath(path), os.path.realpath(path)}
    state = os.stat(path) if os.path.isfile(path) else None
    for source in map(carrier, sources):
        if "://" in source:
            continue
        # promise: extract-hard-link-source
        if state is not None and os.path.exists(source) and os.path.samestat(os.stat(source), state):
            raise AggregationError("the output is also an input", path=path, hint=_OTHER_NAME)
        for origin, target in product({os.path.abspath(source), os.path.realpath(source)}, targets):
            if origin == target:
                raise AggregationError("the output is also an input", path=path, hint=_OTHER_NAME)
            if origin.startswith(f"{target}/"):
                raise AggregationError(f"the output contains {source}, which is read", path=path, hint=_OTHER_NAME)
            if target.startswith(f"{origin}/"):
                raise AggregationError(f"the output lies in {source}, which is read", path=path, hint=_OTHER_NAME)


def _is_begun(path: str, begin: bytes) -> bool:
    """Return whether a file holds a part of ``begin``, or begins with it."""
    with open(path, "rb") as file:
        # promise: extract-truncated-mark
        return begin.startswith(file.read(max(len(begin), 1)))


def _read_mark(path: str) -> str | None:
    try:
        with open(path) as file:
            return str(json.load(file)["fingerprint"])
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def stored_fingerprint(path: str) -> str | None:
    """Return the fingerprint that a result holds, None if it has none."""
    try:
        if os.path.isdir(path):
            with open(os.path.join(path, "zarr.json"), encoding="utf-8") as file:
                value = json.load(file)["attributes"].get(ATTRIBUTE)
        else:
            with LIBRARY_LOCK, h5py_file(path, "r") as file:
                value = file.attrs.get(ATTRIBUTE)
    except LIBRARY_ERRORS:
        return None
    value = value.decode("ascii", "replace") if isinstance(value, bytes) else value
    return value if isinstance(value, str) else None
