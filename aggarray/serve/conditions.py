"""What a request asks of a response: validators, ranges, encodings.

RFC 9110, sections 8.8.3 (entity tags), 12.5.3 (Accept-Encoding), 13 (conditional requests) and 14 (ranges).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: The encodings in the order of preference, where a client likes several equally.
ENCODINGS = ("zstd", "gzip")
_RANGE = re.compile(r"\s*bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*", re.ASCII | re.IGNORECASE)


def matches(header: str | None, tag: str) -> bool:
    """Return whether ``If-None-Match`` names an entity tag.

    >>> matches('"a", W/"b"', '"b"'), matches("*", '"b"'), matches(None, '"b"')
    (True, True, False)
    """
    tags = [text.strip().removeprefix("W/") for text in (header or "").split(",")]
    return tag in tags or tags == ["*"]


def byte_range(header: str | None, size: int) -> range | None:
    """Return the bytes that ``Range`` asks for, None for all.

    Several ranges are answered by all bytes, as the RFC permits. Raises ValueError for a range that is invalid or out of
    bounds.

    >>> byte_range("bytes=2-4", 10), byte_range("bytes=-3", 10), byte_range("bytes=8-99", 10), byte_range("items=1-2", 10)
    (range(2, 5), range(7, 10), range(8, 10), None)
    """
    if header is None or not header.strip().lower().startswith("bytes") or "," in header:
        return None
    match = _RANGE.fullmatch(header)
    first, last = match.groups() if match else ("", "")
    if not first and not last:
        raise ValueError(header)
    start = int(first) if first else max(0, size - int(last))
    stop = min(int(last) + 1, size) if first and last else size
    if start >= stop or (first and last and int(last) < start):
        raise ValueError(header)
    return range(start, stop)


def accepted_encodings(header: str | None) -> Mapping[str, float]:
    """Return the weight of each encoding that ``Accept-Encoding`` names.

    >>> dict(accepted_encodings("gzip, zstd;q=0.5, br;q=0"))
    {'gzip': 1.0, 'zstd': 0.5, 'br': 0.0}
    """
    weights = {}
    for text in (header or "").lower().split(","):
        name, _, parameter = text.partition(";")
        if name.strip():
            weight = re.fullmatch(r"\s*q\s*=\s*([01](?:\.\d*)?)\s*", parameter, re.ASCII)
            weights[name.strip()] = float(weight[1]) if weight else 1.0
    return weights


def chosen_encoding(header: str | None) -> str | None:
    """Return the encoding of a response, None for the bytes as they are.

    >>> chosen_encoding("gzip, deflate, br"), chosen_encoding("gzip;q=0.5, zstd"), chosen_encoding("*"), chosen_encoding(None)
    ('gzip', 'zstd', 'zstd', None)
    """
    weights = accepted_encodings(header)
    weighed = {name: weights.get(name, weights.get("*", 0.0)) for name in ENCODINGS}
    best = max(ENCODINGS, key=weighed.__getitem__)
    return best if weighed[best] > 0 and weighed[best] >= weights.get("identity", 0.0) else None
