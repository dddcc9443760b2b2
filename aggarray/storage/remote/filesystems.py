"""The fsspec file system of an address, and its errors.

A file system is created once per protocol, options and allowed addresses; a changed archive is opened anew. After a fork a
child creates its own.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from typing import Any
from urllib.parse import urljoin

from aggarray.dataclass import dataclass, field
from aggarray.errors import (
    AggarrayError,
    ForbiddenPathError,
    FormatError,
    MissingFileError,
    install_command,
    without_credentials,
)
from aggarray.storage.credentials import access_in_force
from aggarray.storage.lru_cache import LRUCache
from aggarray.storage.state import FileState, changed
from aggarray.storage.urls import WEB, carrier, is_below, scheme_of, split

#: Timeouts in seconds: without a byte, and to connect.
PATIENCE, CONNECT = 30.0, 10.0
#: File systems kept.
_MOST = 64
_S3 = ("s3", "s3a")
_DOTS = re.compile(r"^(\./+)+")


@dataclass(slots=True, eq=False)
class FileSystem:
    """File system of an address.

    ``web``: read by our own requests; ``s3``: read conditionally; ``lock``: held around calls that are not thread-safe.
    """

    fs: Any
    web: bool
    asynchronous: bool
    s3: bool = False
    lock: Any = field(default_factory=threading.Lock)

    def path(self, uri: str) -> str:
        """Return the file system's name for an address."""
        member, archive = split(uri)
        return member if archive else str(self.fs._strip_protocol(uri))


#: Opens a remote archive as a Python file with a `state`; `reader`, which builds on this module, sets it.
open_archive: Any = None
#: File systems by scheme, archive with its state, and access. They close when they are no longer in use.
systems = LRUCache(lambda: _MOST)


def filesystem_of(uri: str) -> FileSystem:
    """Return the file system of an address.

    Raises FormatError if there is none, ForbiddenPathError if the address must not be read.
    """
    access, there = access_in_force.get(), carrier(uri)
    if access.allowed is not None and "://" in there and not is_below(there, access.allowed):
        raise ForbiddenPathError("not among the addresses that may be read", path=uri, hint="name its address in roots=")
    archive, scheme = split(uri)[1], scheme_of(uri)
    file, state = None, None
    if archive.startswith("file://"):
        file = archive
        try:
            info = os.stat(archive[7:])
        except OSError as error:
            raise MissingFileError("no such archive", path=archive[7:], hint="check the path") from error
        state = FileState(info.st_mtime_ns, info.st_size, info.st_ino)
    elif archive:
        file = open_archive(archive)
        state = file.state
    key = scheme, archive, state, access
    system: FileSystem | None = systems.get(key)
    if system is None:
        system = _made(uri, scheme, archive, file)
        systems.keep(key, system)
    return system


def _made(uri: str, scheme: str, archive: str, file: Any) -> FileSystem:
    try:
        import fsspec

        kind = fsspec.get_filesystem_class(scheme)
        options = _options(scheme)
        if archive:
            options |= {"fo": file}
        made = kind(**options, skip_instance_cache=True)
        if scheme == "tar":
            _without_dots(made)
    except ImportError as error:
        what = f"a package that reads it is not installed: {' '.join(str(error).split()).rstrip('.')}"
        is_ours = error.name == "fsspec" or {scheme, scheme_of(archive)} & {*WEB, *_S3}
        raise FormatError(what, path=uri, hint=install_command("remote") if is_ours else None) from error
    except AggarrayError:
        raise
    except library_errors() as error:
        # The text of the library may contain credentials.
        raise explain_error(uri, error, "cannot be opened") from (error if _masked(error) == _text(error) else None)
    web = scheme in WEB
    return FileSystem(made, web, bool(getattr(made, "async_impl", False)), scheme in _S3 and hasattr(made, "_call_s3"))


def _without_dots(archive: Any) -> None:
    members = archive.tar.getmembers()
    if not any(m.name == "." or m.name.startswith("./") for m in members):
        return
    for member in members:
        member.name = _DOTS.sub("", member.name)
        if member.islnk():
            member.linkname = _DOTS.sub("", member.linkname)
    archive.tar.members = [m for m in members if m.name != "."]
    archive._index()


def _options(scheme: str) -> dict[str, Any]:
    options = access_in_force.get().storage.of(scheme)
    if scheme in WEB:
        import aiohttp

        allowed = access_in_force.get().allowed
        client = dict(options.get("client_kwargs") or {})
        client.setdefault("timeout", aiohttp.ClientTimeout(total=None, sock_connect=CONNECT, sock_read=PATIENCE))
        client["trace_configs"] = [*client.get("trace_configs", ()), _watch(allowed)]
        options["client_kwargs"] = client
        # Listings change: they are not cached.
        options.setdefault("use_listings_cache", False)
    elif scheme in _S3:
        given = dict(options.get("config_kwargs") or {})
        options["config_kwargs"] = {"connect_timeout": CONNECT, "read_timeout": PATIENCE, **given}
        options.setdefault("use_listings_cache", False)
    return options


def _watch(allowed: tuple[str, ...] | None) -> Any:
    """Return a client hook that follows redirects to allowed addresses only."""
    import aiohttp

    async def check(session: Any, context: Any, redirect: Any) -> None:
        target = urljoin(str(redirect.url), redirect.response.headers.get("Location", ""))
        # A redirect from http to https stays on the host.
        forms = [form.partition("?")[0] for form in (target, re.sub("^https://", "http://", target))]
        if allowed is not None and not any(is_below(form, allowed) for form in forms):
            host = "/".join(target.split("/")[:3])
            hint = "name it in roots= if you trust it"
            raise ForbiddenPathError(f"redirects to {host}, which was not named", path=str(redirect.url), hint=hint)

    watch = aiohttp.TraceConfig()
    watch.on_request_redirect.append(check)
    return watch


#: Exceptions of file systems, and of the libraries below them.
_ERRORS = (OSError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, EOFError, NotImplementedError)
_THEIRS = (
    *(("aiohttp", "ClientError"), ("botocore.exceptions", "BotoCoreError"), ("botocore.exceptions", "ClientError")),
    *(("zipfile", "BadZipFile"), ("tarfile", "TarError"), ("azure.core.exceptions", "AzureError")),
)


def library_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that reading an address may raise."""
    theirs = (getattr(sys.modules.get(module), name, None) for module, name in _THEIRS)
    return (AggarrayError, *_ERRORS, *(kind for kind in theirs if kind is not None))


#: What to do about an object that ends early.
TRY_AGAIN = "try again, or upload the file again"
#: Credentials that the text of an error may repeat.
_LONGEST = 1000
_SECRET = re.compile(r"(?i)(secret|token|password|key|credential|signature)[^\s,;]*[=:]\s*\S+")


def status_of(error: BaseException) -> int | None:
    """Return the status of the answer that a library raised an error for."""
    response = getattr(error if hasattr(error, "response") else error.__cause__, "response", None)
    answer = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}  # of S3
    codes = getattr(error, "status", None), answer.get("HTTPStatusCode"), getattr(error, "status_code", None)
    return next((code for code in codes if isinstance(code, int) and code), None)


def explain_error(uri: str, error: BaseException, what: str = "cannot be read") -> AggarrayError:
    """Return an error as one line, with address and remedy, no credentials."""
    if isinstance(error, AggarrayError):
        return error
    status, kind = status_of(error), type(error).__name__
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError | KeyError) or status in (404, 410):
        return MissingFileError("no such file or folder", path=uri, hint="check the address")
    if status == 412:
        return changed(uri)
    if isinstance(error, PermissionError) or status in (401, 403) or "Credentials" in kind:
        return FormatError("access denied", path=uri, hint="give credentials in storage_options=")
    if isinstance(error, TimeoutError) or "Timeout" in kind:
        return FormatError(f"{what}: no answer in time", path=uri, hint="try again, or raise the timeout in storage_options=")
    if "Payload" in kind or "Disconnected" in kind:
        return FormatError("truncated: the answer of the server breaks off", path=uri, hint=TRY_AGAIN)
    if isinstance(error, ConnectionError) or "Connect" in kind:
        return FormatError(f"cannot be reached ({kind})", path=uri, hint="check the address and the network")
    if status:
        return FormatError(f"{what}: the server answers {status}", path=uri, hint="try again later")
    return FormatError(f"{what}: {_masked(error) or kind:.200}", path=uri, hint="check the address and storage_options=")


def _text(error: BaseException) -> str:
    return " ".join(str(error).split())[:_LONGEST]


def _masked(error: BaseException) -> str:
    text = access_in_force.get().storage.masked(" ".join(str(error).split()))
    # promise: secrets-masked-bounded
    return _SECRET.sub("...", without_credentials(text[:_LONGEST]))
