"""Processes that own temporary files and exclusive lock files.

A process is identified by its host, its number and its start time, so that a reused number is another process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time

from aggarray.dataclass import dataclass
from aggarray.storage.blake2 import blake2b

#: Age in seconds at which temporary files of unknown processes, or of other hosts, are removed.
ABANDONED = 3600.0
#: Bytes kept of a name that is extended: names have at most 255.
_NAME = 160
_PROCESS = r"(?P<host>\w{1,40})-(?P<pid>\d+)-(?P<start>\d+)"


@dataclass(frozen=True, slots=True)
class Owner:
    """Process on a ``host``; ``start``: clock ticks since boot, 0 if unknown."""

    host: str
    pid: int
    start: int

    def __str__(self) -> str:
        return f"{self.host}-{self.pid}-{self.start}"

    def is_gone(self) -> bool | None:
        """Return whether the process has ended; None on another host or container."""
        if self.host != host():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            pass
        ended, start = _status(self.pid)
        return ended or (start != self.start and 0 not in (start, self.start))


def this_process() -> Owner:
    """Return this process."""
    return Owner(host(), os.getpid(), _status(os.getpid())[1])


@functools.cache
def host() -> str:
    """Return an identifier of this host, or container, since it was booted."""
    name, boot, numbers = os.uname().nodename, "", ""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read()
    with contextlib.suppress(OSError):
        numbers = os.readlink("/proc/self/ns/pid")
    digest = blake2b(f"{name} {boot} {numbers}".encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    return f"{re.sub('[^A-Za-z0-9]', '', name)[:20]}_{digest}"


def _status(pid: int) -> tuple[bool, int]:
    """Return whether a process has ended, and its start time, 0 if hidden."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The program's name, in brackets, may contain any character.
            words = file.read().rpartition(b")")[2].split()
        # A zombie, whose last thread has ended, writes nothing.
        return words[0] in (b"Z", b"X") and int(words[17]) <= 1, int(words[19])
    except (OSError, IndexError, ValueError):
        return False, 0


def owner_of(text: str) -> Owner | None:
    """Return the process that a text names, None for another text.

    >>> owner_of("node1_00ff00ff-17-4711"), owner_of("node1")
    (Owner(host='node1_00ff00ff', pid=17, start=4711), None)
    """
    match = re.fullmatch(_PROCESS, text, re.ASCII)
    return None if match is None else Owner(match["host"], int(match["pid"]), int(match["start"]))


def lock_of(path: str, kind: str = "lock") -> str:
    """Return the hidden lock file beside a path, of a kind."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{_short(name)}.{kind}")


def temporary_of(path: str) -> str:
    """Return a new hidden name beside a path, of this process."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{_short(name)}.{this_process()}-{os.urandom(4).hex()}.tmp")


def abandoned(path: str, unnamed: bool) -> list[str]:
    """Return temporary files beside a path that belong to no running process.

    ``unnamed``: whether files of earlier versions, which name no process, are known to be abandoned.
    """
    folder, name = os.path.split(path)
    pattern = rf"\.{re.escape(_short(name))}\.(({_PROCESS})-)?[0-9a-f]{{8}}\.tmp(\.old\.tmp)?"
    leftovers = []
    for entry in os.listdir(folder or "."):
        match = re.fullmatch(pattern, entry, re.ASCII)
        if match is not None:
            entry_path = os.path.join(folder, entry)
            owner = owner_of(match[2] or "")
            gone = owner.is_gone() if owner is not None else (unnamed or None)
            # promise: live-temporaries-kept
            if _is_old(entry_path) if gone is None else gone:
                leftovers.append(entry_path)
    return leftovers


def _is_old(path: str) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return time.time() - os.lstat(path).st_mtime > ABANDONED
    return False


def _short(name: str) -> str:
    # promise: long-file-names
    return os.fsdecode(os.fsencode(name)[:_NAME])
