"""How many cases a test tries that may try any number: all in the whole suite, a part in ``make test``."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import settings

#: Examples of a test without a number of its own: of the whole suite, and of the profile ``light``.
WHOLE, LIGHT = 50, 10


def examples(number: int, least: int = 1) -> int:
    """Return how many cases to try: ``number``, or its share in the present profile of hypothesis.

    >>> examples(200) == 200 * settings.default.max_examples // WHOLE
    True
    """
    return max(least, number * settings.default.max_examples // WHOLE)


def heavy(cases: Iterable[Any], *, only: Sequence[Any] | None = None, but: Sequence[Any] = ()) -> list[Any]:
    """Return the cases of a parametrised test, marked as heavy: all of them except ``but``, or ``only`` some.

    A case that is a tuple has a value per name.

    >>> [case if isinstance(case, str) else case.marks[0].name for case in heavy(["nc", "zarr"], but=["nc"])]
    ['nc', 'heavy']
    """
    result = []
    for case in cases:
        if not (case not in but if only is None else case in only):
            result.append(case)
        elif hasattr(case, "marks"):  # a pytest.param
            result.append(pytest.param(*case.values, marks=(*case.marks, pytest.mark.heavy), id=case.id))
        else:
            result.append(pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.heavy))
    return result


def heavy_product(*parameters: Sequence[Any]) -> list[Any]:
    """Return all combinations, marked as heavy except as many as are needed to have each value once.

    >>> [(*case.values, bool(case.marks)) for case in heavy_product("abc", (1, 2))]
    [('a', 1, False), ('a', 2, True), ('b', 1, True), ('b', 2, False), ('c', 1, False), ('c', 2, True)]
    """
    light = {tuple(n % len(values) for values in parameters) for n in range(max(map(len, parameters)))}
    result = []
    for at in itertools.product(*(range(len(values)) for values in parameters)):
        case = [values[n] for values, n in zip(parameters, at, strict=True)]
        result.append(pytest.param(*case, marks=() if at in light else pytest.mark.heavy))
    return result
