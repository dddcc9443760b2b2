"""Global attribute ``comment`` of an index: how to open it.

Software that does not read aggregations finds no values in an index, and shows this attribute.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NOTICE = re.compile(r'(?:^|; )open with engine="aggarray" or \S+ aggregation software$')


def with_notice(comment: Any, convention: str) -> Any:
    """Return the comment with the notice added; unchanged if it is not text.

    >>> with_notice("monthly means", "CF-1.13")
    'monthly means; open with engine="aggarray" or CF-1.13 aggregation software'
    """
    notice = f'open with engine="aggarray" or {convention} aggregation software'
    if comment is None:
        return notice
    return "; ".join(filter(None, (_NOTICE.sub("", comment), notice))) if isinstance(comment, str) else comment


def without_notice(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of the data, without the notice of an index.

    >>> without_notice({"comment": with_notice(None, "CF-1.13")}), without_notice({"comment": with_notice("a; b", "CF-1.13")})
    ({}, {'comment': 'a; b'})
    """
    comment = attrs.get("comment")
    if not isinstance(comment, str) or not _NOTICE.search(comment):
        return dict(attrs)
    own = _NOTICE.sub("", comment)
    return {name: own if name == "comment" else value for name, value in attrs.items() if name != "comment" or own}
