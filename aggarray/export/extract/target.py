"""Where is a result made, and how does it get to its place, whole or not at all?

In a folder beside it, named after it with ".part": what is in there, and what it is made of, outlives a process that is
killed. One process at a time works there.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from aggarray import index
from aggarray.errors import AggregationError
from aggarray.formats.base import LIBRARY_ERRORS, LIBRARY_LOCK, h5py_file
from aggarray.storage.atomic import create_private, flush, keep_mode, put_in_place
from aggarray.storage.locks import Lock, LockError, finish_uninterrupted, locked
from aggarray.storage.remote import carrier

#: The global attribute that says what a result was made of.
ATTRIBUTE = "aggarray_extract"
_MARK = "extract.json"
_BEGIN = b'{"fingerprint": "'


@dataclass(frozen=True, slots=True)
class ExtractTarget:
    """The result's path, and the fingerprint of what it is made of."""

    path: str
    fingerprint: str

    @property
    def part(self) -> str:
        """The folder in which the result is made."""
        return f"{self.path}.part"

    @property
    def store(self) -> str:
        """The folder of the chunks."""
        return os.path.join(self.part, "store")

    @property
    def spare(self) -> str:
        """The folder of files that are not whole yet."""
        return os.path.join(self.part, "spare")

    @property
    def file(self) -> str:
        """The file that is put together of the chunks."""
        return os.path.join(self.part, "file.nc")

    def check(self, exists: str) -> None:
        """Raise AggregationError where there is something that must stay."""
        if not os.path.isdir(os.path.dirname(self.path)):
            raise AggregationError(f"{self.path}: there is no folder {os.path.dirname(self.path)}: make it first")
        with contextlib.suppress(FileNotFoundError):  # it has gone meanwhile
            self._check_there(exists)

    def _check_there(self, exists: str) -> None:
        if not os.path.lexists(self.path):
            return
        if exists == "raise":
            raise AggregationError(
                f"{self.path}: is there already: give another name, or overwrite it (exists='overwrite', --overwrite)"
            )
        is_store = os.path.isfile(os.path.join(self.path, "zarr.json")) or os.path.isfile(os.path.join(self.path, ".zgroup"))
        if os.path.isdir(self.path) and not os.path.islink(self.path) and not is_store and os.listdir(self.path):
            raise AggregationError(f"{self.path}: is a folder of something else: give another name, or remove it")
        wants_folder = self.path.lower().endswith(".zarr")
        if not os.path.isdir(self.path) and wants_folder:
            raise AggregationError(f"{self.path}: is a file, no Zarr store: give another name, or remove it")
        if os.path.isdir(self.path) and not wants_folder:
            raise AggregationError(f"{self.path}: is a folder: give another name, or remove it")
        if index.may_be_replaced(self.path) and os.path.getsize(self.path):
            raise AggregationError(f"{self.path}: is an index: give another name, or remove it")
        if exists == "update" and stored_fingerprint(self.path) is None:
            raise AggregationError(f"{self.path}: was not extracted by aggarray: give another name, or remove it")

    def swept(self) -> bool:
        """Tell whether a run was stopped just after it had put the result in its place, and do what it has left undone."""
        if not self._is_done():
            return False
        try:
            with self._locked():
                if done := self._is_done():
                    self._sweep()
        except (AggregationError, OSError):
            return False  # another process is at work there, or the folder is read-only
        return done

    def _is_done(self) -> bool:
        """Tell whether the result is in its place, and nothing but what a run for it has left is in the folder."""
        if os.path.islink(self.part) or not os.path.isdir(self.part) or stored_fingerprint(self.path) != self.fingerprint:
            return False
        with contextlib.suppress(FileNotFoundError):
            return _read_mark(os.path.join(self.part, _MARK)) == self.fingerprint or not os.listdir(self.part)
        return False

    def _sweep(self) -> None:
        """Remove the folder, its mark last: whoever is killed meanwhile is known to have been done."""
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(self.part), key=_MARK.__eq__):
                shutil.rmtree(os.path.join(self.part, name), ignore_errors=True)
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.part, name))
            os.rmdir(self.part)

    @contextlib.contextmanager
    def held(self) -> Iterator[Lock]:
        """Hold the folder for the length of a block; what others left there stays if it is of the same fingerprint."""
        try:
            with self._locked() as lock:
                self._take_over()
                self._prepare()
                yield lock
        except OSError as error:
            if error.strerror is None or isinstance(error, AggregationError):
                raise
            named = error.filename if isinstance(error.filename, str) else ""
            where = named if named.startswith(self.part) else self.path
            why = f"cannot be written: {error.strerror}; run it again when there is space and permission: it goes on from here"
            raise AggregationError(f"{where}: {why}") from error

    def _take_over(self) -> None:
        # promise: extract-symlink
        if os.path.islink(self.part):
            raise AggregationError(f"{self.part}: is a link: remove it, or give another name")
        if not os.path.lexists(self.part):
            create_private(self.part, self.path, folder=True)
        names = set(os.listdir(self.part))
        linked = sorted(n for n in names if os.path.islink(os.path.join(self.part, n)))
        marked = _read_mark(os.path.join(self.part, _MARK)) is not None
        # A run that was stopped before it had left its mark has made at most a part of it (earlier versions: an empty lock).
        begun = {n for n in names & {"lock", _MARK} if _is_begun(os.path.join(self.part, n), _BEGIN if n == _MARK else b"")}
        if linked or not names <= ({"lock", _MARK, "store", "spare", "file.nc"} if marked else begun):
            raise AggregationError(f"{self.part}: is a folder of something else: remove it, or give another name")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Lock]:
        """Hold the lock of the result, whose folder is one of the same process."""
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(locked(self.path, wait=False))
            except BlockingIOError as error:
                raise AggregationError(f"{self.path}: another process is writing it: wait for that to end") from error
            except LockError as error:
                raise AggregationError(f"{self.path}: cannot be written: {error}") from error
            yield lock

    def _prepare(self) -> None:
        """Keep what is there of the same fingerprint, and remove anything else."""
        shutil.rmtree(self.spare, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.file)
        if _read_mark(os.path.join(self.part, _MARK)) != self.fingerprint:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.store)  # all of it: chunks of something else must not stay
            with open(os.path.join(self.part, _MARK), "w") as mark:
                json.dump({"fingerprint": self.fingerprint}, mark)
        os.makedirs(self.store, exist_ok=True)
        os.makedirs(self.spare)

    def finish(self, made: str, lock: Lock) -> None:
        """Put a result in its place, and remove the folder that it was made in; ``lock``: that of `held`."""
        keep_mode(self.path, made)
        flush(made)
        if os.path.isdir(self.path):
            # What was there must never be taken for chunks of the result: it goes where nothing is kept.
            whole = os.path.join(self.spare, "whole")
            os.rename(made, whole)
            # promise: extract-own-chunks
            made = whole
        try:
            lock.check()
        except LockError as error:
            raise AggregationError(f"{self.path}: cannot be written: {error}") from error
        put_in_place(made, self.path)
        flush(os.path.dirname(self.path))
        finish_uninterrupted(self._sweep)


def check_not_source(path: str, sources: Iterable[str]) -> None:
    """Raise AggregationError for a result that would replace what is read, with a folder that it lies in, or grow inside it.

    A hard link to what is read counts as the same file.
    """
    own = {os.path.abspath(path), os.path.realpath(path)}
    state = os.stat(path) if os.path.isfile(path) else None
    for source in map(carrier, sources):
        if "://" in source:
            continue
        # promise: extract-hard-link-source
        if state is not None and os.path.exists(source) and os.path.samestat(os.stat(source), state):
            raise AggregationError(f"{path}: is read itself: give another name")
        for there, mine in product({os.path.abspath(source), os.path.realpath(source)}, own):
            if there == mine:
                raise AggregationError(f"{path}: is read itself: give another name")
            if there.startswith(f"{mine}/"):
                raise AggregationError(f"{path}: holds {source}, which is read: give another name")
            if mine.startswith(f"{there}/"):
                raise AggregationError(f"{path}: lies in {source}, which is read: give another name")


def _is_begun(path: str, begin: bytes) -> bool:
    """Tell whether a file holds no more than a part of what begins so, or begins so."""
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
    """Return the fingerprint of what a result was made of, None where there is no such one."""
    try:
        if os.path.isdir(path):
            with open(os.path.join(path, "zarr.json"), encoding="utf-8") as file:
                found = json.load(file)["attributes"].get(ATTRIBUTE)
        else:
            with LIBRARY_LOCK, h5py_file(path, "r") as file:
                found = file.attrs.get(ATTRIBUTE)
    except LIBRARY_ERRORS:
        return None
    found = found.decode("ascii", "replace") if isinstance(found, bytes) else found
    return found if isinstance(found, str) else None
