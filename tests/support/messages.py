"""Patterns of error messages."""


def says(*patterns: str) -> str:
    """Return a pattern that matches messages of one line in which all patterns occur, in any order."""
    return "^" + "".join(f"(?=.*{pattern})" for pattern in patterns)
