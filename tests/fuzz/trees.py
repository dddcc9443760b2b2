"""Mutation of JSON documents by edits of their trees, including trees inside strings that are JSON.

Values that JSON lacks are objects with one key that begins with a dollar: ``{"$tuple": [1, 2]}``; see `unfolded`.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

#: Values that readers often handle wrongly.
ODD: tuple[Any, ...] = (
    *(None, True, False, "", {}, [], 0, 1, -1, 2, 3, 7, 255, 65536, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64),
    *(-(2**63), 10**30, 10**400, 0.0, -0.0, 0.5, 1e308, 1e-320, float("nan"), float("inf"), float("-inf")),
    *(
        "\x00",
        "\n",
        "\x1b[2J",
        "\ud800",
        "../..",
        "/",
        "nan",
        "-1",
        "1e999",
        "\u202e",
        "a" * 300,
        "é",
        [[]],
        [None],
        {"": None},
    ),
)
_LETTERS = "0123456789-+.,:;()[]{}<>|/\\_ \"'=*%$#@!azAZ\n\t\x00é"
#: Deeper trees are not edited.
_DEEPEST = 60

Place = tuple[Any, Any]


def loaded(data: bytes) -> Any:
    """Parse a document; None for invalid JSON."""
    try:
        return json.loads(data.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None


def dumped(found: Any) -> bytes:
    """Return a document as bytes."""
    return json.dumps(found, separators=(",", ":"), ensure_ascii=True).encode()


def unfolded(found: Any, depth: int = 0) -> Any:
    """Replace the notation of values that JSON lacks by the values.

    >>> unfolded({"$tuple": [1, {"$array": ["i2", [3]]}]})
    (1, array([3], dtype=int16))
    """
    if depth > _DEEPEST:
        return None
    if isinstance(found, list):
        return [unfolded(one, depth + 1) for one in found]
    if not isinstance(found, dict):
        return found
    if len(found) == 1:
        ((kind, content),) = found.items()
        if kind in _MADE:
            try:
                return _MADE[kind](unfolded(content, depth + 1))
            except (ValueError, TypeError, OverflowError, MemoryError, LookupError, SyntaxError):
                return content
    return {key: unfolded(value, depth + 1) for key, value in found.items()}


def _array(content: Any) -> np.ndarray:
    kind, values = content
    if not isinstance(kind, str) or (hasattr(values, "__len__") and len(values) > 1 << 16):
        raise ValueError("no array that is made in a moment")
    dtype = np.dtypes.StringDType() if kind == "T" else np.dtype(kind)
    return np.array(values, dtype)


def _zeros(content: Any) -> np.ndarray:
    kind, shape = content
    if not isinstance(shape, list | tuple) or not all(type(n) is int for n in shape):
        raise ValueError("no shape")
    made = np.broadcast_to(np.zeros((), np.dtype(kind)), tuple(shape))
    return made.copy() if made.size <= 1 << 16 else made


_MADE: dict[str, Callable[[Any], Any]] = {
    "$tuple": tuple,
    "$array": _array,
    "$scalar": lambda c: _array(c)[()],
    "$zeros": _zeros,
    "$bytes": bytes.fromhex,
    "$bytearray": lambda c: bytearray(bytes.fromhex(c)),
    "$range": lambda c: range(*c),
    "$complex": lambda c: complex(*c),
    "$set": frozenset,
    "$keys": lambda c: {(tuple(k) if isinstance(k, list) else k): v for k, v in c},
}


def _places(found: Any, depth: int = 0) -> Iterator[Place]:
    """Yield every position in a tree: a container and a key or index."""
    keys: Any = found.keys() if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ()
    for key in list(keys):
        yield found, key
        if depth < _DEEPEST:
            yield from _places(found[key], depth + 1)


def _number(value: int | float, chance: random.Random) -> Any:
    """Return a number close to another one, or far from it."""
    try:
        return chance.choice(
            (value + 1, value - 1, -value, value * 2, value // 2, value + chance.randint(-300, 300), float(value), str(value))
        )
    except (OverflowError, ValueError):
        return 0


def _text(value: str, chance: random.Random, words: Sequence[Any]) -> Any:
    """Return a text with a few letters or one word changed."""
    if value[:1] in ("{", "[") and chance.random() < 0.7:
        inner = loaded(value.encode("utf-8", "surrogateescape"))
        if isinstance(inner, dict | list):
            edit(inner, chance, words)
            return json.dumps(inner)
    at = chance.randint(0, len(value))
    end = min(len(value), at + chance.choice((0, 0, 1, 1, 2, 5, 20)))
    word = chance.choice(words) if words else "x"
    word = word if isinstance(word, str) else json.dumps(word)
    new = chance.choice(("", chance.choice(_LETTERS), word, value[at : at + 8], "9" * 20))
    return value[:at] + new + value[end:]


def _other(value: Any, chance: random.Random, words: Sequence[Any], pool: Sequence[Any]) -> Any:
    """Return a replacement of a value."""
    kind = chance.random()
    if kind < 0.5 and isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value, chance)
    if kind < 0.6 and isinstance(value, str):
        return _text(value, chance, words)
    if kind < 0.7 and words:
        return deepcopy(chance.choice(words))
    if kind < 0.85 and pool:
        return deepcopy(chance.choice(pool))
    if kind < 0.9:
        return chance.choice(([value], {"$tuple": [value]}, {"x": value}, [value, value]))
    return deepcopy(chance.choice(ODD))


def edit(found: Any, chance: random.Random, words: Sequence[Any] = ()) -> None:
    """Make one random edit in a tree, in place."""
    places = list(_places(found))
    if not places:
        return
    container, key = chance.choice(places)
    kind = chance.random()
    if kind < 0.15:
        del container[key]
    elif kind < 0.3:
        value = deepcopy(container[key])
        if isinstance(container, list):
            container.insert(chance.randint(0, len(container)), value)
        else:
            name = chance.choice(words) if words and chance.random() < 0.8 else None
            container[name if isinstance(name, str) else f"{key}x"] = value
    elif kind < 0.4:
        there, other = chance.choice(places)
        value, expected = container.get(key) if isinstance(container, dict) else container[key], there[other]
        container[key] = deepcopy(expected)
        there[other] = deepcopy(value)
    else:
        pool = [c[k] for c, k in chance.sample(places, min(4, len(places)))]
        container[key] = _other(container[key], chance, words, pool)


def mutator(words: Sequence[Any]) -> Callable[[bytes, int, int], bytes]:
    """Return a mutator of documents; ``words``: words that their readers use."""

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        chance, result = random.Random(seed), loaded(data)
        if not isinstance(result, dict | list):
            return b"{}"
        for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
            edit(result, chance, words)
        try:
            made = dumped(result)
        except (ValueError, RecursionError):
            return data[:longest]
        return made if len(made) <= longest else data[:longest]

    return mutate


def crossed(data: bytes, other: bytes, longest: int, seed: int) -> bytes:
    """Return a document with a part replaced by a part of another one."""
    chance, result, there = random.Random(seed), loaded(data), loaded(other)
    ours, theirs = list(_places(result)), list(_places(there))
    if not ours or not theirs:
        return data[:longest]
    (container, key), (source, name) = chance.choice(ours), chance.choice(theirs)
    container[key] = source[name]
    try:
        made = dumped(result)
    except (ValueError, RecursionError):
        return data[:longest]
    return made if len(made) <= longest else data[:longest]
