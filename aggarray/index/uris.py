"""How are the files of an index named in it, and found again: beside the index, elsewhere, or nowhere else than allowed?

Written are URI references (RFC 3986, CF section 2.8.2): relative ones against the index's own folder, absolute ones with
their scheme. `Files` turns them into paths when somebody asks.
"""

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_from_bytes, unquote

from aggarray.errors import AggregationError, IndexFileError
from aggarray.formats import local_path
from aggarray.index.store import Texts
from aggarray.storage.access import is_below
from aggarray.storage.remote import canonical, is_remote, origin, parent, resolve

#: Characters of a path that stand for themselves in a URI.
_SAFE = "/!$&'()*+,;=:@~-._"
_PLAIN = re.compile(rf"[A-Za-z0-9{re.escape(_SAFE)}]*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(//|/)")


def written(paths: Sequence[str], folder: str, relative: bool) -> list[str]:
    """Return the URI references of files: relative to a folder, or absolute. Those of remote files stay as they are.

    >>> written(["/data/a.nc", "/data/b c.nc", "/x.nc"], "/data", True), written(["/data/a.nc"], "/data", False)
    (['a.nc', 'b%20c.nc', '../x.nc'], ['file:///data/a.nc'])
    """
    leads = _Leads(folder, relative)
    text = "".join(paths)
    if ":" not in text and _PLAIN.fullmatch(text):  # hundreds of thousands of plain names take no look each
        return [leads[head] + tail for head, _, tail in (path.rpartition("/") for path in paths)]
    return [path if "://" in path else _written(path, leads) for path in paths]


def _written(path: str, leads: "_Leads") -> str:
    head, _, tail = path.rpartition("/")
    lead = leads[head]
    # What stands before a colon would be a scheme.
    return ("./" if not lead and ":" in tail else lead) + _quoted(tail)


class _Leads(dict[str, str]):
    """What comes before the names of the files in a folder, worked out once for each."""

    def __init__(self, folder: str, relative: bool) -> None:
        self._folder, self._relative = folder, relative

    def __missing__(self, head: str) -> str:
        way = os.path.relpath(head or "/", self._folder) if self._relative else head
        if self._relative and way.startswith(".."):
            # What leads out of a folder that was reached by a link is where the link points to.
            way = os.path.relpath(_real(head or "/"), _real(self._folder))
        lead = f"{_quoted(way)}/" if self._relative else f"file://{_quoted(way)}/"
        lead = "" if way == "." and self._relative else lead
        self[head] = lead = f"./{lead}" if ":" in lead.partition("/")[0] and self._relative else lead
        return lead


@functools.lru_cache(maxsize=256)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


def real_path(path: str) -> str:
    """Return the path of an index, links resolved; an address as it is."""
    return path if is_remote(path) else os.path.realpath(path)


def home_of(path: str) -> str:
    """Return the folder against which the names in an index are resolved; an index that is a link lies where that points to."""
    if is_remote(path):
        return parent(path)
    return os.path.dirname(os.path.realpath(path) if os.path.islink(path) else os.path.abspath(path))


def _quoted(text: str) -> str:
    return quote_from_bytes(os.fsencode(text), safe=_SAFE)


def is_url(written: str) -> bool:
    """Tell whether a file name is a URI with a scheme; a colon alone makes none.

    >>> is_url("file:/a.nc"), is_url("https://host/a.nc"), is_url("a:b.nc")
    (True, True, False)
    """
    return _URL.match(written) is not None


def resolve_uri(written: str, folder: str) -> str:
    """Return the absolute path or URL that a file name in an index stands for.

    ``folder``: the index's own. ``file:`` URIs become paths, other URIs stay; references are percent-decoded, unless only the
    literal name exists; absolute paths stay as they are. FormatError for a ``file:`` URI of another host.

    >>> resolve_uri("../b%20c.nc", "/data/index"), resolve_uri("file:///data/a.nc", "/"), resolve_uri("s3://b/a.nc", "/")
    ('/data/b c.nc', '/data/a.nc', 's3://b/a.nc')
    """
    url = _URL.match(written)
    if url is not None:
        if not written.lower().startswith("file:"):
            return canonical(written) or written
        return os.path.normpath(local_path(written if url[1] == "//" else f"file://{written[5:]}"))
    if is_remote(folder):
        return resolve(written, folder)
    folder = _real(folder) if written.startswith("../") else folder
    literal = os.path.join(folder, written)
    literal = os.path.normpath(literal) if "/." in literal or "//" in literal or written.startswith(".") else literal
    if "%" not in written:
        return literal
    decoded = os.path.normpath(os.path.join(folder, unquote(written, errors="surrogateescape")))
    if os.path.isabs(written):
        return decoded if os.path.exists(decoded) and not os.path.exists(literal) else literal
    return literal if os.path.exists(literal) and not os.path.exists(decoded) else decoded


def _unquoted(text: str) -> str:
    return unquote(text, errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class PathMap:
    """Prefixes that are replaced in URI references before these are resolved: (old, new), the longest old one first.

    A prefix ends where a name in the path ends. It is compared with a reference as it is written and, encoded characters
    decoded, as a path. What replaces it is a folder, relative to the index's or absolute, or a URL.

    >>> moves({"/old": "/new"}).applied("file:///old/a.nc"), moves({"a": "b"}).applied("ab/c.nc")
    ('file:///new/a.nc', 'ab/c.nc')
    """

    pairs: tuple[tuple[str, str], ...] = ()

    def applied(self, reference: str) -> str:
        """Return a reference with the first prefix replaced that fits."""
        for old, new in self.pairs:
            for form in dict.fromkeys((reference, _path_of(reference))):
                rest = _rest(form, old)
                if rest is not None:
                    return _joined(new, rest, form is reference or form == reference)
        return reference


#: Nothing is replaced.
NOWHERE = PathMap()


def path_map(relocate: Mapping[str, str] | None) -> PathMap:
    """Return what a user wishes to be replaced; AggregationError where it is no mapping of prefixes."""
    given = {} if relocate is None else relocate
    if not isinstance(given, Mapping):
        raise AggregationError(f"relocate={relocate!r}: give {{old prefix: new prefix}}")
    try:
        pairs = [(os.fspath(old), os.fspath(new)) for old, new in given.items()]
    except TypeError as error:
        raise AggregationError(f"relocate={relocate!r}: give {{old prefix: new prefix}}, both text or paths") from error
    return PathMap(tuple(sorted(pairs, key=lambda pair: -len(pair[0]))))


def _path_of(reference: str) -> str:
    """Return a reference decoded: the path of a file, a URL as it is."""
    if _URL.match(reference) and not reference.lower().startswith("file:"):
        return reference
    return _unquoted(re.sub(r"^file:(//(localhost)?)?(?=/)", "", reference, flags=re.IGNORECASE))


def _rest(form: str, old: str) -> str | None:
    """Return what follows a prefix, None where it is none."""
    if not form.startswith(old):
        return None
    rest = form[len(old) :]
    return rest if not old or not rest or old.endswith("/") or rest.startswith("/") else None


def _joined(new: str, rest: str, encoded: bool) -> str:
    """Put a new prefix before the rest; a path becomes a reference."""
    if not _URL.match(new):
        new = f"file://{_quoted(new)}" if new.startswith("/") else _quoted(new)
    rest = rest if encoded else _quoted(rest)
    if new and rest and not new.endswith("/") and not rest.startswith("/"):
        return f"{new}/{rest}"
    return new + (rest.lstrip("/") if new.endswith("/") else rest)


class Files(Sequence[str]):
    """The files of an index: references as written, resolved one by one."""

    __slots__ = ("_folder", "_moves", "references")

    def __init__(self, references: Sequence[str], folder: str, moves: PathMap) -> None:
        self.references, self._folder, self._moves = references, folder, moves

    def take(self, rows: Sequence[int]) -> "Files":
        """Return some of the files, in the order given."""
        return Files([self.references[row] for row in rows], self._folder, self._moves)

    def __len__(self) -> int:
        return len(self.references)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            return [self[i] for i in range(len(self))[item]]
        return self._resolved(self.references[item])

    def _resolved(self, reference: str) -> str:
        return resolve_uri(self._moves.applied(reference) if self._moves.pairs else reference, self._folder)

    def __iter__(self) -> Iterator[str]:
        text = self.references.text() if isinstance(self.references, Texts) else "".join(self.references)
        if self._moves.pairs or "%" in text or ":" in text:
            return map(self._resolved, self.references)
        # Plain names, all of them: each folder is resolved once.
        folders = _Folders(self._folder)
        return (folders[head + slash] + tail for head, slash, tail in (r.rpartition("/") for r in self.references))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return tuple, (list(self),)


class _Folders(dict[str, str]):
    """What the folders in plain references resolve to, with the slash behind, worked out once for each."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __missing__(self, head: str) -> str:
        self[head] = path = resolve_uri(f"{head}-", self._folder)[:-1]
        return path


def check_roots(files: Sequence[str], roots: Sequence[str], index: str) -> None:
    """Raise IndexFileError for the first file that lies in none of the roots, links and ``..`` resolved."""
    folders: dict[str, bool] = {}
    for path in files:
        head, _, tail = path.rpartition("/")
        if "://" in path or tail in ("", ".", "..") or os.path.islink(path):
            inside = is_below(path, roots)
        else:
            if head not in folders:
                folders[head] = is_below(f"{head}/-", roots)
            inside = folders[head]
        if not inside:
            raise IndexFileError(
                f"{index}: names {path}, which lies outside roots={list(roots)}; add its folder if you trust it"
            )


def checked_roots(roots: object) -> tuple[str, ...] | None:
    """Return roots as resolved folders or URL prefixes; AggregationError where they are none."""
    if roots is None:
        return None
    try:
        items = [roots] if isinstance(roots, str | os.PathLike) else list(roots)  # type: ignore[call-overload]
        names = [os.fspath(item) for item in items]
    except TypeError as error:
        raise AggregationError(f"roots={roots!r}: give a list of folders") from error
    if not all(isinstance(name, str) and name for name in names):
        raise AggregationError(f"roots={roots!r}: give a list of folders, as text or paths")
    return tuple(_root(name) for name in names)


def _root(name: str) -> str:
    address = canonical(name)
    return os.path.realpath(os.path.expanduser(local_path(name))) if address is None else address.rstrip("/")


def near(named: Sequence[str], moves: PathMap) -> tuple[str, ...]:
    """Return what files may be read from where no roots are given: where the user named files, or has them moved to.

    Any local file, once a local one was named; remote ones from the same host or bucket.
    """
    found = [origin(path) if is_remote(path) else "/" for path in named]
    found += [_root(new) if canonical(new) is None else origin(str(canonical(new))) for _, new in moves.pairs if new]
    return tuple(dict.fromkeys(found))
