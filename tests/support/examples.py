"""How many cases a test with a free choice of their number takes: all in the whole suite, a part in ``make test``."""

from hypothesis import settings

#: Examples of a test without a number of its own: of the whole suite, and of the profile ``light``.
WHOLE, LIGHT = 50, 10


def examples(number: int) -> int:
    """Return the number of cases to run: ``number``, or its share in the present profile of hypothesis.

    >>> examples(200) == 200 * settings.default.max_examples // WHOLE
    True
    """
    return max(1, number * settings.default.max_examples // WHOLE)
