"""Which files may an array be read from, and what happens where one is gone?"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from aggarray.errors import IndexFileError


@dataclass(frozen=True, slots=True)
class Access:
    """How the files of an array may be read.

    ``missing``: what a file that is gone does, "raise" or "fill"; ``roots``: the only folders, resolved, whose files are
    opened, None = any.
    """

    missing: str = "raise"
    roots: tuple[str, ...] | None = None

    def check(self, uri: str) -> None:
        """Raise IndexFileError for a file outside the roots, links resolved."""
        if self.roots is not None and not is_below(uri, self.roots):
            raise IndexFileError(f"{uri}: lies outside the folders that may be read; name its folder in roots=")

    def check_named(self, uri: str, by: str) -> None:
        """Raise IndexFileError for a file that another one names and that may not be read.

        Without roots any local file may, a remote one only from where what names it came.
        """
        if self.roots is not None:
            self.check(uri)
        elif "://" in uri and _origin(uri) != _origin(by):
            raise IndexFileError(
                f"{by}: names {uri}, elsewhere than where it came from; add its address to roots= if you trust it"
            )


#: Any file may be read.
ANYWHERE = Access()


def _origin(uri: str) -> list[str]:
    """Return scheme and host of a URL.

    >>> _origin("s3://bucket/a/b.nc")
    ['s3:', '', 'bucket']
    """
    return uri.split("/")[:3] if "://" in uri else []


def is_below(uri: str, roots: Sequence[str]) -> bool:
    """Tell whether a file lies in one of the folders (or under one of the URL prefixes), links and ``..`` resolved.

    >>> is_below("/data/a/../b.nc", ["/data"]), is_below("/data2/b.nc", ["/data"])
    (True, False)
    """
    real = uri if "://" in uri else os.path.realpath(uri)
    if "://" in real and "/../" in f"{unquote(real)}/":
        return False
    return any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots)
