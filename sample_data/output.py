"""Output of the demonstration: titles, and checks of its claims."""

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
