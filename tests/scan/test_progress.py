"""The progress bar shows count, rate and remaining time."""

import pytest

from aggarray.errors import AggregationError
from aggarray.scan.progress import Bar, checked_progress

pytestmark = pytest.mark.quick


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_bar_shows_rate_and_remaining_time(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    bar = Bar("files", clock)
    bar(0, 1000, "scanning")
    clock.now += 10
    bar(100, 1000, "scanning")
    bar(101, 1000, "scanning")  # within the update interval
    clock.now += 10
    bar(1000, 1000, "scanning")
    lines = [line.rstrip() for line in capsys.readouterr().err.split("\r")]
    assert lines[1:] == [
        f"scanning [{'.' * 24}] 0/1000",
        f"scanning [##{'.' * 22}] 100/1000, 10 files/s, 1:30 left",
        f"scanning [{'#' * 24}] 1000/1000, 50 files/s, 20 s",
    ]
    bar(5, 10, "scanning")
    assert capsys.readouterr().err.rstrip() == f"\rscanning [{'#' * 12}{'.' * 12}] 5/10"


def test_rate_excludes_earlier_work(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    bar = Bar("bytes", clock)
    bar(3_000_000_000, 9_000_000_000, "extracting")
    clock.now += 20
    bar(5_000_000_000, 9_000_000_000, "extracting")
    assert "5.0 GB/9.0 GB, 100.0 MB/s, 40 s left" in capsys.readouterr().err


def test_lines_end_and_cover_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    bar = Bar("files", clock)
    for done in (0, 50, 99, 100):
        clock.now += 1
        bar(done, 100, "scanning")
    drawn = capsys.readouterr().err
    assert (
        drawn.endswith("\n") and drawn.count("\n") == 1 and {len(line) for line in drawn.rstrip("\n").split("\r")[1:]} == {78}
    )
    bar(0, 0, "scanning")
    assert capsys.readouterr().err.endswith("\n")


def test_progress_argument() -> None:
    def told(done: int, total: int, what: str) -> None:
        """Record a call."""

    assert checked_progress(None) is checked_progress(False) is None and checked_progress(told) is told
    assert checked_progress(True, "bytes") == Bar("bytes")
    with pytest.raises(AggregationError, match="give True, None or a callable"):
        checked_progress("yes")  # type: ignore[arg-type]
