"""Which file system of fsspec reads an address, and what does it make of errors?

File systems are made once for each protocol, its options and the addresses that may be gone to; an archive that has changed is
opened anew. After a fork a child makes its own.
"""

import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urljoin

from aggarray.errors import AggarrayError, ForbiddenPathError, FormatError, MissingFileError
from aggarray.storage.remote.conditional import changed
from aggarray.storage.remote.credentials import current_access
from aggarray.storage.remote.urls import carrier, is_below, scheme_of, split

#: Seconds without a byte after which a web server is given up, and to be reached in.
PATIENCE, CONNECT = 30.0, 10.0
#: File systems that are kept.
_MOST = 64
#: What serves which protocol, for who does not have it.
_WEB = ("http", "https")
_S3 = ("s3", "s3a")


@dataclass(slots=True, eq=False)
class FileSystem:
    """A file system; ``web``: read by our own requests; ``lock``: held around calls of those that are not made for threads.

    ``s3``: objects of S3, which are read by a condition on their version.
    """

    fs: Any
    web: bool
    asynchronous: bool
    s3: bool = False
    lock: Any = field(default_factory=threading.Lock)

    def path(self, uri: str) -> str:
        """Return what the file system calls an address."""
        member, archive = split(uri)
        return member if archive else str(self.fs._strip_protocol(uri))


class Objects(NamedTuple):
    """How remote objects that hold archives are read: what tells that one has changed, and one opened as a file."""

    state: Callable[[str], tuple[int, ...]]
    opened: Callable[[str], Any]


_objects: Objects


def read_archives_through(objects: Objects) -> None:
    """Set how remote archives are read; `objects`, which builds on this module, does so when it is imported."""
    global _objects
    _objects = objects


_systems: dict[Any, FileSystem] = {}
_lock = threading.Lock()


def _forked() -> None:
    # The lock may have been held by a thread, and connections belong to threads, that the child does not have.
    global _lock
    _lock = threading.Lock()
    _systems.clear()


if hasattr(os, "register_at_fork"):
    # promise: remote-systems-lock-fork
    os.register_at_fork(after_in_child=_forked)


def check_access(uri: str) -> None:
    """Raise IndexFileError for an address that may not be gone to."""
    allowed, there = current_access().allowed, carrier(uri)
    if allowed is not None and "://" in there and not is_below(there, allowed):
        raise ForbiddenPathError(f"{uri}: not among the addresses that may be read; name its address in roots=")


def filesystem_of(uri: str) -> FileSystem:
    """Return the file system of an address. Raises FormatError where there is none, IndexFileError where it may not be read."""
    check_access(uri)
    reach, archive, scheme = current_access(), split(uri)[1], scheme_of(uri)
    key = (scheme, archive, _archive_state(archive) if archive else None, reach)
    with _lock:
        known = _systems.get(key)
    if known is None:
        known = _made(uri, scheme, archive)
        with _lock:
            while len(_systems) >= _MOST:
                _systems.pop(next(iter(_systems)))
            known = _systems.setdefault(key, known)
    return known


def close_filesystems() -> None:
    """Forget the file systems; they close when nobody uses them any more."""
    with _lock:
        _systems.clear()


def _archive_state(archive: str) -> tuple[int, ...]:
    """Return what tells that an archive has changed."""
    if archive.startswith("file://"):
        try:
            status = os.stat(archive[7:])
        except OSError as error:
            raise MissingFileError(f"{archive[7:]}: no such archive; check the path") from error
        return status.st_mtime_ns, status.st_size, status.st_ino
    return _objects.state(archive)


def _made(uri: str, scheme: str, archive: str) -> FileSystem:
    try:
        import fsspec

        kind = fsspec.get_filesystem_class(scheme)
        options = _options(scheme)
        if archive:
            options |= {"fo": _archive_file(archive)}
        made = kind(**options, skip_instance_cache=True)
        if scheme == "tar":
            _without_dots(made)
    except ImportError as error:
        raise FormatError(f"{uri}: {_lacking(scheme, archive, error)}") from error
    except AggarrayError:
        raise
    except library_errors() as error:
        raise explain_error(uri, error, "cannot be opened") from error
    web = scheme in _WEB
    return FileSystem(made, web, bool(getattr(made, "async_impl", False)), scheme in _S3 and hasattr(made, "_call_s3"))


def _archive_file(archive: str) -> Any:
    """Return an archive as what the file system of its members reads: a remote one by reads of one version of it."""
    if archive.startswith("file://"):
        return archive
    return _objects.opened(archive)


def _without_dots(archive: Any) -> None:
    """Name the members of a tar archive that was made of ``.`` or ``./folder`` as those of others: without ``./``."""
    members = archive.tar.getmembers()
    if not any(m.name == "." or m.name.startswith("./") for m in members):
        return
    for member in members:
        member.name = _DOTS.sub("", member.name)
        if member.islnk():
            member.linkname = _DOTS.sub("", member.linkname)
    archive.tar.members = [m for m in members if m.name != "."]
    archive._index()


_DOTS = re.compile(r"^(\./+)+")


def _lacking(scheme: str, archive: str, error: ImportError) -> str:
    """Say what has to be installed: our extra has what the usual protocols need."""
    wanted = {scheme, scheme_of(archive)} if archive else {scheme}
    what = " ".join(str(error).split()).rstrip(".")
    if error.name == "fsspec" or wanted & {*_WEB, "s3", "s3a"}:
        return f"reading it needs packages that are not installed ({what}): pip install 'aggarray[remote]'"
    return f"reading it needs a package that is not installed: {what}"


def _options(scheme: str) -> dict[str, Any]:
    """Return what a file system is made with: what was given, and bounds for how long it waits and where it is sent to."""
    options = current_access().storage.of(scheme)
    if scheme in _WEB:
        import aiohttp

        allowed = current_access().allowed
        client = dict(options.get("client_kwargs") or {})
        client.setdefault("timeout", aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=PATIENCE))
        client["trace_configs"] = [*client.get("trace_configs", ()), _watch(allowed)]
        options["client_kwargs"] = client
        # Listings change, and ours are short-lived.
        options.setdefault("use_listings_cache", False)
    elif scheme in _S3:
        given = dict(options.get("config_kwargs") or {})
        options["config_kwargs"] = {"connect_timeout": CONNECT, "read_timeout": PATIENCE, **given}
        options.setdefault("use_listings_cache", False)
    return options


def _watch(allowed: tuple[str, ...] | None) -> Any:
    """Return what lets a client follow redirections to allowed addresses only."""
    import aiohttp

    async def check(session: Any, context: Any, told: Any) -> None:
        """Look at a redirection before it is followed."""
        target = urljoin(str(told.url), told.response.headers.get("Location", ""))
        # From http to https of the same host is no other place.
        forms = [form.partition("?")[0] for form in (target, re.sub("^https://", "http://", target))]
        if allowed is not None and not any(is_below(form, allowed) for form in forms):
            host = "/".join(target.split("/")[:3])
            raise ForbiddenPathError(f"{told.url}: redirects to {host}, which was not named; name it in roots= if you trust it")

    watch = aiohttp.TraceConfig()
    watch.on_request_redirect.append(check)
    return watch


#: What file systems raise, and those libraries beneath them that have errors of their own.
_ERRORS = (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, EOFError, NotImplementedError)
_THEIRS = (
    *(("aiohttp", "ClientError"), ("botocore.exceptions", "BotoCoreError"), ("botocore.exceptions", "ClientError")),
    *(("zipfile", "BadZipFile"), ("tarfile", "TarError")),
)


def library_errors() -> tuple[type[Exception], ...]:
    """Return what reading an address may raise, of the libraries that are loaded; errors of ours among them."""
    theirs = (getattr(sys.modules.get(module), name, None) for module, name in _THEIRS)
    return (AggarrayError, *_ERRORS, *(kind for kind in theirs if kind is not None))


#: What an error says that is no file: the last of what its own text may repeat of options.
_LONGEST = 1000
_SECRET = re.compile(r"(?i)(secret|token|password|key|credential|signature)[^\s,;]*[=:]\s*\S+")


def explain_error(uri: str, error: BaseException, what: str = "cannot be read") -> AggarrayError:
    """Return an error of a library as one line that names the address and the way out; no credentials are repeated."""
    if isinstance(error, AggarrayError):
        return error
    status = getattr(error, "status", None) or _aws_status(error)
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError | KeyError) or status in (404, 410):
        return MissingFileError(f"{uri}: no such file or folder; check the address")
    if status == 412:
        return changed(uri)
    if isinstance(error, PermissionError) or status in (401, 403) or "Credentials" in kind:
        return FormatError(f"{uri}: access denied; give credentials in storage_options=")
    if isinstance(error, TimeoutError) or "Timeout" in kind:
        return FormatError(f"{uri}: {what}: no answer in time; try again, or raise the timeout in storage_options=")
    if "Payload" in kind or "Disconnected" in kind:
        return FormatError(f"{uri}: truncated: the answer of the server breaks off; try again, or upload the file again")
    if isinstance(error, ConnectionError) or "Connect" in kind:
        return FormatError(f"{uri}: cannot be reached ({kind}); check the address and the network")
    if status:
        return FormatError(f"{uri}: {what}: the server answers {status}; try again later")
    # promise: secrets-masked-bounded
    text = _SECRET.sub("...", " ".join(str(error).split())[:_LONGEST] or kind)
    return FormatError(f"{uri}: {what}: {text:.200}; check the address and storage_options=")


def _aws_status(error: BaseException) -> int | None:
    """Return the status of a web server that an error of S3 hides."""
    cause = error if hasattr(error, "response") else error.__cause__
    response = getattr(cause, "response", None)
    found = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    return found if isinstance(found, int) else None
