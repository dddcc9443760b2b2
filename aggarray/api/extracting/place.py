"""Where is a result made, and how does it get to its place, whole or not at all?

In a folder beside it, named after it with ".part": what is in there, and what it is made of, outlives a process that is
killed. One process at a time works there.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from aggarray import indexes
from aggarray.errors import AggregationError
from aggarray.formats.base import LIBRARY_ERRORS, LIBRARY_LOCK, h5py_file
from aggarray.indexes.atomic import flush, is_still, put, surely
from aggarray.remote import carrier

#: The global attribute that says what a result was made of.
ATTRIBUTE = "aggarray_extract"
_MARK = "extract.json"
_BEGIN = b'{"fingerprint": "'


@dataclass(frozen=True, slots=True)
class Place:
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
        if indexes.may_be_replaced(self.path) and os.path.getsize(self.path):
            raise AggregationError(f"{self.path}: is an index: give another name, or remove it")
        if exists == "update" and stored_fingerprint(self.path) is None:
            raise AggregationError(f"{self.path}: was not extracted by aggarray: give another name, or remove it")

    def swept(self) -> bool:
        """Tell whether a run was stopped just after it had put the result in its place, and do what it has left undone."""
        if not os.path.isdir(self.part) or stored_fingerprint(self.path) != self.fingerprint:
            return False
        if _read_mark(os.path.join(self.part, _MARK)) != self.fingerprint and os.listdir(self.part):
            return False
        try:
            with self._locked():
                self._sweep()
        except AggregationError:
            return False  # somebody is at work there
        return True

    def _sweep(self) -> None:
        """Remove the folder, its mark last: whoever is killed meanwhile is known to have been done."""
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(self.part), key=_MARK.__eq__):
                shutil.rmtree(os.path.join(self.part, name), ignore_errors=True)
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self.part, name))
            os.rmdir(self.part)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for the length of a block; what others left there stays if it is of the same fingerprint."""
        try:
            self._take_over()
            with self._locked():
                self._prepare()
                yield
        except OSError as error:
            if error.strerror is None or isinstance(error, AggregationError):
                raise
            where = error.filename if isinstance(error.filename, str) else self.part
            why = f"cannot be written: {error.strerror}; run it again when there is space and permission: it goes on from here"
            raise AggregationError(f"{where}: {why}") from error

    def _take_over(self) -> None:
        with self._gone_is_taken():
            names = set(os.listdir(self.part)) if os.path.isdir(self.part) else set()
        marked = _read_mark(os.path.join(self.part, _MARK)) is not None
        # A run that was stopped before it had left its mark has made a lock, which is empty, and at most a part of the mark.
        begun = {n for n in names & {"lock", _MARK} if _is_begun(os.path.join(self.part, n), _BEGIN if n == _MARK else b"")}
        if not names <= ({"lock", _MARK, "store", "spare", "file.nc"} if marked else begun):
            raise AggregationError(f"{self.part}: is a folder of something else: remove it, or give another name")
        os.makedirs(self.part, exist_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with self._gone_is_taken():
            opened = open(os.path.join(self.part, "lock"), "a")  # noqa: SIM115 - closed below
        with opened as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                # Some network file systems know no locks.
                if error.errno in (errno.EAGAIN, errno.EACCES):
                    raise self._taken() from error
            if not is_still(lock.fileno(), lock.name):
                raise self._taken()
            yield

    @contextlib.contextmanager
    def _gone_is_taken(self) -> Iterator[None]:
        """Whoever removes the folder in this moment was writing it."""
        try:
            yield
        except FileNotFoundError as error:
            raise self._taken() from error

    def _taken(self) -> AggregationError:
        return AggregationError(f"{self.path}: another process is writing it: wait for that to end")

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

    def finish(self, made: str) -> None:
        """Put a result in its place, and remove the folder that it was made in."""
        flush(made)
        if os.path.isdir(self.path):
            # What was there must never be taken for chunks of the result: it goes where nothing is kept.
            whole = os.path.join(self.spare, "whole")
            os.rename(made, whole)
            made = whole
        put(made, self.path)
        flush(os.path.dirname(self.path))
        surely(self._sweep)


def check_apart(path: str, sources: Iterable[str]) -> None:
    """Raise AggregationError for a result that would replace what is read, with a folder that it lies in, or grow inside it.

    A hard link to what is read counts as the same file.
    """
    own = {os.path.abspath(path), os.path.realpath(path)}
    state = os.stat(path) if os.path.isfile(path) else None
    for source in map(carrier, sources):
        if "://" in source:
            continue
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
