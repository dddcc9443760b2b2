"""Why are items of an HDF5 file left out? The words and bounds that its own reader and h5py share."""

#: Groups within groups; those further down are left out.
DEEPEST = 64
#: So many soft links are followed on the way to one object.
MOST_FOLLOWED = 16

OUTSIDE = "a link into another file; name that file instead"
DANGLING = "a link that leads nowhere"
#: Why a dimension has no name.
NO_SCALE = "a reference to an object that is not there; the dimension has no name"
NOT_UTF8 = "a name that is not UTF-8; rename it"
TOO_DEEP = f"groups within groups, more than {DEEPEST}; write the file anew with fewer"
#: The word for the type of an attribute whose name is not UTF-8.
MISNAMED = "misnamed"


def refusal(kind: str) -> str:
    """Say why a variable of a type is skipped.

    >>> refusal("opaque")
    'values of an opaque type; aggarray reads numbers and text'
    """
    readable = "text, and rows of numbers along one dimension" if kind == "variable-length" else "numbers and text"
    return f"values of {_article(kind)} {kind} type; aggarray reads {readable}"


def attribute_refusal(kind: str) -> str:
    """Say why an attribute of a type is left out."""
    if kind == MISNAMED:
        return f"an attribute with {NOT_UTF8}"
    return f"an attribute of {_article(kind)} {kind} type, left out; aggarray reads numbers and text"


def _article(word: str) -> str:
    return "an" if word[0] in "aeiou8" else "a"
