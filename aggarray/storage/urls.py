"""Addresses of remote files.

An address is a URL, or a member of an archive, ``zip://member::archive`` (or ``tar://``), whose archive is a URL or ``file://``
and an absolute path. `canonical` converts user input to that form: within aggarray, a path with ``://`` is remote.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from functools import lru_cache

from aggarray.errors import FormatError, is_credential

#: Schemes of archives.
ARCHIVES = ("zip", "tar")

_URL = r"(?s)([A-Za-z][A-Za-z0-9+.-]+)://(.*)"
WEB = ("http", "https")
#: Environment variable with prefixes of addresses to replace.
RELOCATE = "AGGARRAY_RELOCATE"
#: Other parameters of signatures, of S3 and Google.
_SIGNING = ("x-amz-", "x-goog-")
#: Characters of a name that need no quoting in a web address.
_SAFE = "/!$&'()*+,;=:@~-._"


# Each read inspects the same paths several times.
@lru_cache(maxsize=4096)
def is_remote(path: str) -> bool:
    """Return whether a path, in canonical form, is an address.

    >>> is_remote("/data/a.nc"), is_remote("s3://bucket/a.nc")
    (False, True)
    """
    at = path.find("://")
    return at > 1 and path[0].isalpha() and "/" not in path[:at]


def scheme_of(uri: str) -> str:
    """Return the scheme of an address."""
    return uri.partition("://")[0]


def split(uri: str) -> tuple[str, str]:
    """Return the member and the archive of an address, else itself and "".

    >>> split("zip://a/b.nc::s3://bucket/x.zip"), split("s3://bucket/a::b.nc")
    (('a/b.nc', 's3://bucket/x.zip'), ('s3://bucket/a::b.nc', ''))
    """
    scheme, _, rest = uri.partition("://")
    if scheme not in ARCHIVES:
        return uri, ""
    member, _, archive = rest.partition("::")
    return member, archive


def canonical(text: str) -> str | None:
    """Return an address in canonical form; None for a local path.

    FormatError for an invalid address, and for one with a password.

    >>> canonical("HTTPS://host/a.nc"), canonical("zip://a.nc::/data/x.zip"), canonical("a.nc")
    ('https://host/a.nc', 'zip://a.nc::file:///data/x.zip', None)
    """
    found = re.fullmatch(_URL, text) if "://" in text else None
    scheme, rest = (found[1].lower(), found[2]) if found else ("file", "")
    if scheme in ("file", "local"):
        return None
    if any(ord(c) < 32 for c in text):
        raise FormatError("the address contains control characters", path=text, hint="correct the address")
    if scheme in ARCHIVES:
        member, _, archive = rest.partition("::")
        if not archive:
            hint = f"name the archive too, as in {scheme}://a.nc::/data/archive.{scheme}"
            raise FormatError("the address names no archive", path=f"{scheme}://{rest}", hint=hint)
        where = canonical(archive)
        if where is not None and split(where)[1]:
            raise FormatError("an archive within an archive", path=f"{scheme}://{rest}", hint="unpack the outer one")
        if where is None:
            path = archive[7:] if archive.lower().startswith("file://") else archive
            where = f"file://{os.path.abspath(os.path.expanduser(path))}"
        member = member.strip("/")
        if ".." in member.split("/"):
            raise FormatError("the address leads out of the archive", path=f"{scheme}://{rest}", hint="name a member of it")
        return f"{scheme}://{member}::{where}"
    host = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    if "@" in host:
        place = f"{scheme}://{host.rpartition('@')[2]}"
        what = "the address contains a user's name or password, which indexes and messages would repeat"
        raise FormatError(what, path=place, hint="give it in storage_options=")
    return f"{scheme}://{rest}"


def unsigned(address: str) -> str:
    """Return an address without the query parameters that sign it.

    >>> unsigned("https://h/a.nc?v=1&sv=2024&sp=r&sig=x"), unsigned("https://h/a.nc?X-Amz-Date=1&X-Amz-Signature=x")
    ('https://h/a.nc?v=1&sv=2024&sp=r', 'https://h/a.nc')
    """
    head, mark, query = address.partition("?")
    if not mark or "://" not in head or scheme_of(split(address)[1] or address) not in WEB:
        return address
    parts = query.split("&")
    kept = [part for part in parts if not (is_credential(name := part.partition("=")[0]) or name.lower().startswith(_SIGNING))]
    return address if len(kept) == len(parts) else f"{head}?{'&'.join(kept)}" if kept else head


def join(folder: str, *names: str) -> str:
    """Return the path or address of nested names in a folder.

    >>> join("/data", "a"), join("https://h/s.zarr?key=1", "my tas"), join("zip://::s3://b/x.zip", "tas", "0")
    ('/data/a', 'https://h/s.zarr/my%20tas?key=1', 'zip://tas/0::s3://b/x.zip')
    """
    if "://" not in folder:
        return os.path.join(folder, *names)
    parts = [name for name in names if name]
    member, archive = split(folder)
    if archive:
        return f"{scheme_of(folder)}://{'/'.join([*([member] if member else []), *parts])}::{archive}"
    query = ""
    if scheme_of(folder) in WEB:
        folder, mark, query = folder.partition("?")
        from urllib.parse import quote

        query, parts = mark + query, [quote(part, safe=_SAFE) for part in parts]
    return "/".join([folder.rstrip("/"), *parts]) + query


def below(folder: str, path: str) -> str:
    """Return the path or address of a relative path in a folder."""
    return f"{folder}/{path}" if "://" not in folder else join(folder, *path.split("/"))


def stem(path: str) -> str:
    """Return the last name in a path without its suffix, as `pathlib` does.

    >>> stem("/data/a.b.zarr"), stem("s3://bucket/.zarr/"), stem("a.")
    ('a.b', '.zarr', 'a.')
    """
    name = os.path.basename(path.rstrip("/"))
    dot = name.rfind(".")
    return name[:dot] if 0 < dot < len(name) - 1 else name


def parent(uri: str) -> str:
    """Return the path or address of the folder of a file or object.

    >>> parent("https://h/d/a.nc?key=1"), parent("zip://d/a.nc::s3://b/x.zip"), parent("/d/a.nc")
    ('https://h/d', 'zip://d::s3://b/x.zip', '/d')
    """
    if not is_remote(uri):
        return os.path.dirname(uri)
    member, archive = split(uri)
    if archive:
        return f"{scheme_of(uri)}://{posixpath.dirname(member)}::{archive}"
    plain = uri.partition("?")[0] if scheme_of(uri) in WEB else uri
    head, _, rest = plain.partition("://")
    return f"{head}://{rest.rpartition('/')[0] or rest}"


def resolve(reference: str, folder: str) -> str:
    """Resolve a relative reference (RFC 3986) within the host or archive.

    >>> resolve("../b%20c.nc", "https://h/d/e"), resolve("../b%20c.nc", "s3://b/d/e"), resolve("/a.nc", "s3://b/d")
    ('https://h/d/b%20c.nc', 's3://b/d/b c.nc', 's3://b/a.nc')
    """
    scheme = scheme_of(folder)
    if scheme not in WEB:
        from urllib.parse import unquote

        reference = unquote(reference, errors="surrogateescape")
    member, archive = split(folder)
    if archive:
        inner = posixpath.normpath(posixpath.join("/", member, reference)).lstrip("/")
        return f"{scheme}://{inner}::{archive}"
    host, _, path = folder.partition("://")[2].partition("/")
    return f"{scheme}://{host}{posixpath.normpath(posixpath.join('/', path, reference))}"


def reference_to(uri: str, folder: str) -> str:
    """Return the relative reference of an address in a folder's bucket.

    Addresses elsewhere, and those that a reference does not resolve to, are returned unchanged.

    >>> reference_to("s3://b/data/a c.nc", "s3://b/index"), reference_to("s3://other/a.nc", "s3://b/index")
    ('../data/a%20c.nc', 's3://other/a.nc')
    """
    from urllib.parse import quote

    bucket = "/".join(folder.split("/")[:3])
    if not uri.startswith(f"{bucket}/"):
        return uri
    path = posixpath.relpath(uri[len(bucket) :], folder[len(bucket) :] or "/")
    reference = quote(path, safe=_SAFE, errors="surrogateescape")
    reference = f"./{reference}" if ":" in reference.partition("/")[0] else reference
    # Keys of objects may contain what is not part of a path, such as an empty name.
    return reference if resolve(reference, folder) == uri else uri


def carrier(uri: str) -> str:
    """Return the archive of a member; for another address, itself.

    >>> carrier("zip://a.nc::file:///data/x.zip"), carrier("s3://b/a.nc")
    ('/data/x.zip', 's3://b/a.nc')
    """
    archive = split(uri)[1] or uri
    return archive[7:] if archive.startswith("file://") else archive


def origin(uri: str) -> str:
    """Return the host or bucket of an address; the folder of a local archive.

    >>> origin("https://h:80/a.nc"), origin("zip://a::s3://b/x.zip"), origin("memory://a/b")
    ('https://h:80', 's3://b', 'memory://')
    """
    there = carrier(uri)
    if "://" not in there:
        return os.path.dirname(there)
    scheme, _, rest = there.partition("://")
    return "memory://" if scheme == "memory" else f"{scheme}://{re.split(r'[/?#]', rest, maxsplit=1)[0]}"


def is_below(uri: str, roots: Sequence[str]) -> bool:
    """Return whether an address without ``..`` starts with one of the roots.

    >>> is_below("s3://b/d/a.nc", ["s3://b/d"]), is_below("s3://b/d2/a.nc", ["s3://b/d"]), is_below("s3://b/d/../a", ["s3://b/d"])
    (True, False, False)
    """
    from urllib.parse import unquote

    if "/../" in f"{unquote(uri)}/".replace("\\", "/"):
        return False
    return any(uri == root or uri.startswith(root.rstrip("/") + "/") for root in roots)
