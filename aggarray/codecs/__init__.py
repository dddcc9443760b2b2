"""How are stored bytes decoded? A `Filter` is one step of an encoding as a file states it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Filter:
    """One step of an encoding as a file states it: name of the codec, and its parameters (plain ints and texts, hashable)."""

    name: str
    parameters: tuple[int | str | bool, ...] = ()
