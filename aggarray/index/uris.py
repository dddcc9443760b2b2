"""URI references to the files of an index, and their resolution.

References (RFC 3986, CF section 2.8.2) are relative to the folder of the index, or absolute with a scheme.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence

from aggarray.dataclass import dataclass
from aggarray.errors import AggregationError, ForbiddenPathError
from aggarray.storage import relocated_roots
from aggarray.storage.access import is_below
from aggarray.storage.files import local_path
from aggarray.storage.urls import RELOCATE, canonical, is_remote, origin, parent, reference_to, resolve, unsigned

#: Characters of a path that are not percent-encoded in a URI.
SAFE = "/!$&'()*+,;=:@~-._"
_URL = r"[A-Za-z][A-Za-z0-9+.-]+:(//|/)"


def written(paths: Sequence[str], folder: str, relative: bool) -> list[str]:
    """Return the URI references of files, relative to a folder or absolute.

    URLs of remote files are returned without signatures; in a remote folder, those of the same bucket are relative.

    >>> written(["/data/a.nc", "/data/b c.nc", "/x.nc"], "/data", True), written(["/data/a.nc"], "/data", False)
    (['a.nc', 'b%20c.nc', '../x.nc'], ['file:///data/a.nc'])
    """
    if is_remote(folder):
        urls = [unsigned(path) if "://" in path else f"file://{_quoted(path)}" for path in paths]
        return [reference_to(url, folder) for url in urls] if relative else urls
    lead_of = functools.cache(lambda head: _lead(head, folder, relative))
    text = "".join(paths)
    if ":" not in text and re.fullmatch(rf"[A-Za-z0-9{re.escape(SAFE)}]*", text):  # plain names need no further checks
        return [lead_of(head) + tail for head, _, tail in (path.rpartition("/") for path in paths)]

    def reference(path: str) -> str:
        head, _, tail = path.rpartition("/")
        # Text before a colon would be read as a scheme.
        return ("./" if not lead_of(head) and ":" in tail else lead_of(head)) + _quoted(tail)

    # promise: indexes-without-signatures
    return [unsigned(path) if "://" in path else reference(path) for path in paths]


def _lead(head: str, folder: str, relative: bool) -> str:
    """Return the reference of a folder, followed by a slash."""
    if not relative:
        return f"file://{_quoted(head)}/"
    path = os.path.relpath(head or "/", folder)
    if path.startswith(".."):
        # A path out of a linked folder starts from the target of the link.
        path = os.path.relpath(_real(head or "/"), _real(folder))
    lead = "" if path == "." else f"{_quoted(path)}/"
    return f"./{lead}" if ":" in lead.partition("/")[0] else lead


@functools.lru_cache(maxsize=256)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def real_path(path: str) -> str:
    """Return the path of an index with links resolved; a URL unchanged."""
    return path if is_remote(path) else os.path.realpath(path)


def home_of(path: str) -> str:
    """Return the resolved folder that references of an index are relative to."""
    if is_remote(path):
        return parent(path)
    return os.path.dirname(os.path.realpath(path) if os.path.islink(path) else os.path.abspath(path))


def _quoted(text: str) -> str:
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(os.fsencode(text), safe=SAFE)


def is_url(reference: str) -> bool:
    """Return whether a file name is a URI with a scheme.

    A colon alone is not enough.

    >>> is_url("file:/a.nc"), is_url("https://host/a.nc"), is_url("a:b.nc")
    (True, True, False)
    """
    return ":" in reference and re.match(_URL, reference) is not None


def resolve_uri(reference: str, folder: str) -> str:
    """Return the absolute path or URL of a file name in an index.

    ``folder``: that of the index. ``file:`` URIs become paths, other URIs are kept. Relative references are percent-decoded
    unless only the literal name exists. Absolute paths are kept. Raises FormatError for a ``file:`` URI of another host.

    >>> resolve_uri("../b%20c.nc", "/data/index"), resolve_uri("file:///data/a.nc", "/"), resolve_uri("s3://b/a.nc", "/")
    ('/data/b c.nc', '/data/a.nc', 's3://b/a.nc')
    """
    url = re.match(_URL, reference) if ":" in reference else None
    if url is not None:
        if not reference.lower().startswith("file:"):
            return canonical(reference) or reference
        return os.path.normpath(local_path(reference if url[1] == "//" else f"file://{reference[5:]}"))
    if is_remote(folder):
        return resolve(reference, folder)
    folder = _real(folder) if reference.startswith("../") else folder
    literal = os.path.join(folder, reference)
    literal = os.path.normpath(literal) if "/." in literal or "//" in literal or reference.startswith(".") else literal
    if "%" not in reference:
        return literal
    from urllib.parse import unquote

    decoded = os.path.normpath(os.path.join(folder, unquote(reference, errors="surrogateescape")))
    if os.path.isabs(reference):
        return decoded if os.path.exists(decoded) and not os.path.exists(literal) else literal
    return literal if os.path.exists(literal) and not os.path.exists(decoded) else decoded


@dataclass(frozen=True, slots=True)
class PathMap:
    """URI prefixes to replace; ``pairs``: (old, new), longest old first.

    A prefix ends at the end of a path component. It is compared with a reference as written and, percent-decoded, as a path.
    Its replacement is a folder, absolute or relative to that of the index, or a URL.

    >>> path_map({"/old": "/new"}).applied("file:///old/a.nc"), path_map({"a": "b"}).applied("ab/c.nc")
    ('file:///new/a.nc', 'ab/c.nc')
    """

    pairs: tuple[tuple[str, str], ...] = ()

    def applied(self, reference: str) -> str:
        """Return a reference with the first matching prefix replaced."""
        path = reference
        if not is_url(reference) or reference.lower().startswith("file:"):
            path = re.sub(r"^file:(//(localhost)?)?(?=/)", "", reference, flags=re.IGNORECASE)
            from urllib.parse import unquote

            path = unquote(path, errors="surrogateescape")
        for old, new in self.pairs:
            for form in (reference, path):
                rest = form.removeprefix(old)
                if form.startswith(old) and (not old or not rest or old.endswith("/") or rest.startswith("/")):
                    return _joined(new, rest if form == reference else _quoted(rest))
        return reference


#: Map without replacements.
NOWHERE = PathMap()


def path_map(relocate: Mapping[str, str] | None) -> PathMap:
    """Return the map of ``relocate``, or raise AggregationError."""
    prefixes = {} if relocate is None else relocate
    if not isinstance(prefixes, Mapping):
        raise AggregationError(f"relocate={relocate!r} is not a mapping", hint="give {old prefix: new prefix}")
    try:
        pairs = [(os.fspath(old), os.fspath(new)) for old, new in prefixes.items()]
    except TypeError as error:
        hint = "give {old prefix: new prefix}, both text or paths"
        raise AggregationError(f"relocate={relocate!r} has prefixes that are not text", hint=hint) from error
    return PathMap(tuple(sorted(pairs, key=lambda pair: -len(pair[0]))))


def _joined(new: str, rest: str) -> str:
    if not is_url(new):
        new = f"file://{_quoted(new)}" if new.startswith("/") else _quoted(new)
    if new and rest and not new.endswith("/") and not rest.startswith("/"):
        return f"{new}/{rest}"
    return new + (rest.lstrip("/") if new.endswith("/") else rest)


def check_roots(files: Sequence[str], roots: Sequence[str], index: str | None = None) -> None:
    """Raise ForbiddenPathError for the first file outside the roots.

    Links and ``..`` are resolved. ``index``: the file that refers to them, None if the caller named them.
    """
    below = functools.cache(lambda path: is_below(path, roots))
    for path in files:
        head, _, tail = path.rpartition("/")
        # The files of one folder are checked together.
        single = "://" in path or tail in ("", ".", "..") or os.path.islink(path)
        if not (is_below(path, roots) if single else below(f"{head}/-")):
            outside = f"outside the roots ({', '.join(roots) or 'none'})"
            what, where = (outside, path) if index is None else (f"refers to {path}, which is {outside}", index)
            raise ForbiddenPathError(what, path=where, hint="name its folder in roots= if you trust it")


def checked_roots(roots: object) -> tuple[str, ...] | None:
    """Return roots as resolved paths or URLs, or raise AggregationError."""
    if roots is None:
        return None
    try:
        items = [roots] if isinstance(roots, str | os.PathLike) else list(roots)  # type: ignore[call-overload]
        names = [os.fspath(item) for item in items]
    except TypeError as error:
        raise AggregationError(f"roots={roots!r} is not a list", hint="give a list of folders") from error
    if not all(isinstance(name, str) and name for name in names):
        raise AggregationError(f"roots={roots!r} has items that are not paths", hint="give a list of folders, as text or paths")
    return tuple(_root(name) for name in names)


def _root(name: str) -> str:
    address = canonical(name)
    return os.path.realpath(os.path.expanduser(local_path(name))) if address is None else address.rstrip("/")


def near(paths: Sequence[str], path_map: PathMap) -> tuple[str, ...]:
    """Return the default roots: the locations that the caller named.

    Any local file, if a local one was named; remote files of the same host or bucket. Targets of ``path_map`` and
    AGGARRAY_RELOCATE count too.
    """
    roots = [origin(path) if is_remote(path) else "/" for path in paths]
    roots += [_root(new) if canonical(new) is None else origin(str(canonical(new))) for _, new in path_map.pairs if new]
    named = tuple(dict.fromkeys(roots))
    return named if RELOCATE not in os.environ else relocated_roots(named) or ()
