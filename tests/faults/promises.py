"""What is promised, what code keeps each promise, and which test fails without that code? `breaking` shows that it does."""

import tomllib
from pathlib import Path
from typing import NamedTuple


class Promise(NamedTuple):
    """A promise; the ``guard`` in the ``code`` that keeps it, what is there ``instead`` where it is broken, and a ``test``.

    ``code``: below ``aggarray``; ``test``: below ``tests``; ``only``: which tests of it, as pytest's ``-k`` has it.
    """

    area: str
    says: str
    code: str
    guard: str
    instead: str
    test: str
    only: str


def promises() -> list[Promise]:
    """Return the promises that are listed beside this module."""
    listed = tomllib.loads((Path(__file__).parent / "promises.toml").read_text(encoding="utf-8"))["promise"]
    return [Promise(**one) for one in listed]
