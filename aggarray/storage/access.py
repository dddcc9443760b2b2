"""Which files an array may read, and what a missing file does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from aggarray.dataclass import dataclass, replace
from aggarray.errors import ForbiddenPathError
from aggarray.storage import relocated_roots, urls
from aggarray.storage.credentials import RemoteAccess, StorageOptions, access_in_force
from aggarray.storage.urls import carrier

#: Access without options for remote files.
NO_OPTIONS = StorageOptions()


@dataclass(frozen=True, slots=True)
class Access:
    """Rules for reading the files of an array.

    ``missing``: what a missing file does, "raise" or "fill"; ``roots``: the only folders (links resolved) and address prefixes
    whose files are opened, None = any; ``near``: those that apply without roots, where the user's own path lies;
    ``storage``: options for remote files.
    """

    missing: str = "raise"
    roots: tuple[str, ...] | None = None
    near: tuple[str, ...] | None = None
    storage: StorageOptions = NO_OPTIONS

    def __setstate__(self, state: list[Any]) -> None:
        """Restore the rules of another process, with the locations of this one."""
        for name, value in zip(("missing", "roots", "near", "storage"), state, strict=True):
            object.__setattr__(self, name, relocated_roots(value) if name in ("roots", "near") else value)

    def check(self, uri: str) -> None:
        """Raise ForbiddenPathError for a file outside the roots or ``near``."""
        if self.roots is not None:
            if not is_below(uri, self.roots):
                hint = "name its folder in roots="
                raise ForbiddenPathError("lies outside the folders that may be read", path=uri, hint=hint)
        elif self.near is not None and ("/" not in self.near or "://" in uri) and not is_below(uri, self.near):
            what = "a remote file" if "://" in carrier(uri) else "a local file"
            hint = "name its address or folder in roots= if you trust it, or fetch it and open with relocate="
            raise ForbiddenPathError(f"{what} that an index from elsewhere names", path=uri, hint=hint)

    def naming(self, paths: Iterable[str]) -> Access:
        """Return access that includes remote files which the caller named.

        An index may lie outside the roots; the files that it names may not.
        """
        addresses = () if self.roots is None else tuple(carrier(path) for path in paths if "://" in carrier(path))
        return replace(self, roots=(*(self.roots or ()), *addresses)) if addresses else self

    @contextmanager
    def reach(self) -> Iterator[None]:
        """Give access to remote files by these rules for the length of a block."""
        allowed = self.near if self.roots is None else self.roots
        token = access_in_force.set(RemoteAccess(self.storage, allowed))
        try:
            yield
        finally:
            access_in_force.reset(token)

    def check_named(self, uri: str, by: str) -> None:
        """Raise ForbiddenPathError for a file that another file must not name.

        Without roots, a local file may name any local file, and a remote one only files of its own host or bucket.
        """
        # promise: reference-roots
        if self.roots is not None:
            self.check(uri)
        elif "://" in uri and (uri.split("/")[:3] != by.split("/")[:3] if self.near is None else not is_below(uri, self.near)):
            hint = "name its address in roots= if you trust it"
            raise ForbiddenPathError(f"refers to {uri}, which lies on another host or in another bucket", path=by, hint=hint)
        else:
            self.check(uri)


#: Any file may be read.
ANYWHERE = Access()


def is_below(uri: str, roots: Sequence[str]) -> bool:
    """Return whether a file lies in one of the folders.

    Links and ``..`` are resolved. For remote files the folders are URL prefixes. A member of an archive lies where the archive
    lies, or below an address with the same beginning.

    >>> is_below("/data/a/../b.nc", ["/data"]), is_below("/data2/b.nc", ["/data"])
    (True, False)
    """
    there = carrier(uri)
    if "://" in there:
        return urls.is_below(there, roots)
    try:
        real = os.path.realpath(there)
    except ValueError:  # a null character, or one that no name of a file can have: it lies nowhere
        return False
    return any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots)
