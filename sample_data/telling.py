"""What do the chapters of the demonstration share? They print a title, and check what they claim."""

import sys
from pathlib import Path

#: The folder of the sample data.
HERE = Path(__file__).parent


def show(title: str) -> None:
    """Print a chapter's title."""
    print(f"\n{title}\n{'=' * len(title)}\n")


def check(true: bool, claim: str) -> None:
    """Print what was checked; stop with an error where it does not hold."""
    print(f"  {'checked' if true else 'WRONG'}: {claim}")
    if not true:
        sys.exit(1)
