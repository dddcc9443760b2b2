"""Reads of one version of an object.

S3 gets ``If-Match``, answers of web servers are checked. A version is an entity tag or, without one, the time of change.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from aggarray.dataclass import NamedTuple
from aggarray.storage.state import changed

#: Prefix of a version that is the time of the last change.
_MODIFIED = "Last-Modified: "


class ExpectedVersion(NamedTuple):
    """Version a read must return: ``tag``, "" for any; ``tags``: those met."""

    tag: str = ""
    tags: MutableMapping[str, str] | None = None

    def of(self, uri: str) -> str:
        """Return the expected version of an object, "" for any."""
        return self.tag or (self.tags or {}).get(uri, "")

    def check(self, uri: str, headers: Mapping[str, Any]) -> None:
        """Raise ChangedFileError for another version; record the first version."""
        expected, there = self.of(uri), version_of(headers)
        if expected and expected.startswith(_MODIFIED) != there.startswith(_MODIFIED):
            # A tag and a time do not compare; the time does, if the answer has both.
            there = _modified(headers) if expected.startswith(_MODIFIED) else ""
        # promise: remote-version
        if expected and there and expected.strip('"') != there.strip('"'):
            raise changed(uri)
        if self.tags is not None and there:
            self.tags.setdefault(uri, there)


ANY = ExpectedVersion()


def version_of(headers: Mapping[str, Any]) -> str:
    """Return the version in the headers of an answer, "" if there is none."""
    return str(headers.get("ETag") or "") or _modified(headers)


def _modified(headers: Mapping[str, Any]) -> str:
    return f"{_MODIFIED}{headers['Last-Modified']}" if headers.get("Last-Modified") else ""


def if_match(version: str) -> str:
    """Return the ``If-Match`` header for a version, "" if it cannot be used.

    >>> if_match('"abc"'), if_match('W/"abc"'), if_match("Last-Modified: now")
    ('"abc"', '', '')
    """
    return "" if version.startswith(("W/", _MODIFIED)) else version


async def get_s3(fs: Any, uri: str, limits: tuple[int, int], expected: ExpectedVersion) -> bytes:
    """Return bytes of an object in S3 by one request; may raise s3fs errors."""
    from s3fs.core import _error_wrapper

    bucket, key, version = fs.split_path(fs._strip_protocol(uri))
    demanded: dict[str, Any] = {"VersionId": version} if version else {}
    tag = if_match(expected.of(uri))
    if tag and not getattr(fs, "local_expiry_check", False):  # set for servers that do not know it
        demanded["IfMatch"] = tag

    async def once() -> bytes:
        span = f"bytes={limits[0]}-{limits[1] - 1}"
        response = await fs._call_s3("get_object", Bucket=bucket, Key=key, Range=span, **demanded)
        try:
            expected.check(uri, {"ETag": response.get("ETag")})
            return bytes(await response["Body"].read())
        finally:
            response["Body"].close()

    return bytes(await _error_wrapper(once, retries=fs.retries))
