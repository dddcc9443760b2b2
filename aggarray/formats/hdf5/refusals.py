"""Reasons why a scan skips items of an HDF5 file, shared by both scanners."""

#: Greatest depth of nested groups. Deeper groups are skipped.
from __future__ import annotations

DEEPEST = 64
#: Number of soft links that are followed on the path to one object.
MOST_FOLLOWED = 16

OUTSIDE = "a link into another file; open that file instead"
DANGLING = "a broken link"
#: Reason why a dimension has no name.
NO_SCALE = "a reference to a missing object; the dimension has no name"
NOT_UTF8 = "a name that is not UTF-8; rename it"
TOO_DEEP = f"groups nested more than {DEEPEST} deep; rewrite the file with fewer levels"
#: Type name of an attribute whose name is not UTF-8.
MISNAMED = "misnamed"


def refusal(type_name: str) -> str:
    """Return the reason why a variable of a type is skipped.

    >>> refusal("opaque")
    'values of an opaque type; aggarray reads numbers and text'
    """
    readable = "text, and rows of numbers along one dimension" if type_name == "variable-length" else "numbers and text"
    return f"values of {_article(type_name)} {type_name} type; aggarray reads {readable}"


def attribute_refusal(type_name: str) -> str:
    """Return the reason why an attribute of a type is skipped."""
    if type_name == MISNAMED:
        return f"an attribute with {NOT_UTF8}"
    return f"an attribute of {_article(type_name)} {type_name} type; aggarray reads numbers and text"


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou8" else "a"
