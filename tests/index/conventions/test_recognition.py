"""Recognition of aggregation files without importing the conventions."""

import pytest

from aggarray.index.conventions.foreign import conventions
from aggarray.index.recognition import MARKS

pytestmark = pytest.mark.quick


def test_marks_begin_as_recognition_expects() -> None:
    """A convention whose marks begin differently would not be asked: extend ``MARKS``."""
    marks = [mark for convention in conventions() for mark in convention.marks]
    assert marks and [mark for mark in marks if not mark.startswith(MARKS)] == []
