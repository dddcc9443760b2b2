"""Output of the demonstration: titles, checks of its claims, chapters left out."""

import importlib.util
import os
import sys
from pathlib import Path

#: The folder of the sample data.
HERE = Path(__file__).parent


def show(title: str) -> None:
    """Print the title of a chapter."""
    print(f"\n{title}\n{'=' * len(title)}\n")


def check(true: bool, claim: str) -> None:
    """Print a claim; raise an error if it does not hold."""
    print(f"  {'checked' if true else 'WRONG'}: {claim}")
    if not true:
        sys.exit(1)


def is_installed(library: str, extras: str) -> bool:
    """Return whether a library is installed; if not, print that the chapter is left out, and the command that adds it."""
    if importlib.util.find_spec(library) is not None:
        return True
    print(f"left out: {library} is not installed; {os.path.relpath(sys.executable)} -m pip install '.[{extras}]' adds it")
    return False
