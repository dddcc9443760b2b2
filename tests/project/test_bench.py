"""The benchmarks run on tiny data, and all contestants return equal values. Nothing is timed."""

import numpy as np
import pytest

pytest.importorskip("xarray", reason="the benchmarks compare with xarray: install the extra 'xarray'")
pytest.importorskip("dask.array", reason="the benchmarks compare with dask: install the extra 'xarray'")

import time
from dataclasses import replace
from pathlib import Path

from tests.bench import charts
from tests.bench.__main__ import main
from tests.bench.harness import BenchmarkError, Measured, benchmarks, present, run, same_values, table
from tests.support.examples import heavy

NAMES = sorted(benchmarks())


def quiet(_text: str) -> None:
    """Discard progress messages."""


# xarray announces new defaults of `open_mfdataset`.
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", heavy(NAMES, but=["join", "open", "reduce"]))
def test_contestants_agree(name: str, tmp_path: Path) -> None:
    """Runs in this process, which is faster than the fresh processes of the harness."""
    benchmark, absent = present(benchmarks()[name])
    if not benchmark.contestants:
        pytest.skip("; ".join(absent))
    size = benchmark.sizes["tiny"]
    benchmark.make(tmp_path, size)
    first: dict[str, np.ndarray] = {}
    for contestant in benchmark.contestants:
        given = contestant.prepare(tmp_path, size)
        result = contestant.values(given, contestant.work(given))
        first = first or result
        common = first.keys() & result.keys()
        assert common, contestant.name
        for key in common:
            assert same_values(np.asarray(first[key]), np.asarray(result[key])), (contestant.name, key)


def test_full_and_tiny_have_the_same_numbers() -> None:
    for benchmark in benchmarks().values():
        assert not benchmark.per or benchmark.per in benchmark.sizes["full"]
        assert set(benchmark.sizes) == {"full", "tiny"}
        assert benchmark.sizes["full"].keys() == benchmark.sizes["tiny"].keys()


@pytest.mark.heavy
def test_the_program_prints_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["join", "--size", "tiny", "--repeats", "1"]) == 0
    printed = capsys.readouterr().out
    assert "### join" in printed and "| aggarray.concat |" in printed and "| 1.00 (1.00) |" in printed


def test_contestants_without_their_program_are_left_out() -> None:
    benchmark = benchmarks()["reduce"]
    absent = replace(benchmark.contestants[0], name="absent", needs=("program:no-such-program",))
    shown, lines = present(replace(benchmark, contestants=(benchmark.contestants[0], absent)))
    assert [c.name for c in shown.contestants] == ["aggarray"] and "no-such-program not installed" in lines[0]


@pytest.mark.parametrize("wrong", [["nonsense"], ["join", "--repeats", "0"]])
def test_wrong_usage(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(wrong)
    assert "nonsense" in capsys.readouterr().err or "--repeats" in wrong


def test_different_values_raise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    benchmark = benchmarks()["join"]

    def answers(_benchmark: object, contestant: object, _size: str, places: list[str]) -> dict[str, float]:
        if len(places) > 1:
            np.savez(places[1], values=np.array([contestant is benchmark.contestants[1]]))
        return {"seconds": 1.0, "bytes": 0}

    monkeypatch.setattr("tests.bench.harness._fresh_process", answers)
    with pytest.raises(BenchmarkError, match=r"xarray\.concat: values differ"):
        run(benchmark, "tiny", 1, quiet)
    rounds = run(replace(benchmark, contestants=benchmark.contestants[:1]), "tiny", 3, quiet)
    assert rounds[0].work == [1.0] * 3


def test_the_table_compares_medians() -> None:
    measured = [Measured("a", [1.0, 2.0, 9.0], [2.0] * 3, [10**6] * 3), Measured("b", [4.0] * 3, [3.0] * 3, [2 * 10**6] * 3)]
    lines = table(benchmarks()["join"], "tiny", measured).splitlines()
    assert lines[-2] == "| a | 2.000 (1.000 to 9.000) | 1.00 (1.00) | 2.000 (2.000 to 2.000) | 1.00 (1.00) | 1 |"
    assert lines[-1] == "| b | 4.000 (4.000 to 4.000) | 2.00 (4.00) | 3.000 (3.000 to 3.000) | 1.50 (1.50) | 2 |"


def test_table_marks_stopped_contestants_and_costs_per_piece() -> None:
    measured = [Measured("a", [1.0] * 3, [2.0] * 3, [0] * 3), Measured("b", [16.0], [17.0], [0])]
    benchmark = replace(benchmarks()["join"], per="arrays")
    lines = table(benchmark, "tiny", measured).splitlines()
    assert lines[-4].endswith("| µs, one of arrays |")
    assert lines[-2].endswith("| 200000.00 |")
    assert lines[-1].startswith("| b (1 round) | 16.000")


def test_slow_contestants_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = benchmarks()["join"]

    def answers(_benchmark: object, contestant: object, _size: str, places: list[str]) -> dict[str, float]:
        if len(places) > 1:
            np.savez(places[1], values=np.zeros(1))
        time.sleep(0.2 if contestant is benchmark.contestants[1] else 0)
        return {"seconds": 1.0, "bytes": 0}

    monkeypatch.setattr("tests.bench.harness._fresh_process", answers)
    monkeypatch.setattr("tests.bench.harness.PATIENCE", 0.3)
    assert [len(one.work) for one in run(benchmark, "tiny", 4, quiet)] == [4, 2, 4]


def test_missing_contestants_are_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = benchmarks()["join"]
    lacking = replace(benchmark.contestants[1], needs=("numpy", "no_such_module"))
    some, lines = present(replace(benchmark, contestants=(benchmark.contestants[0], lacking)))
    assert some.contestants == benchmark.contestants[:1]
    assert lines == ["xarray.concat is left out: no_such_module not installed"]
    without = replace(benchmark, needs=("no_such_module",))
    monkeypatch.setattr("tests.bench.__main__.benchmarks", lambda: {"join": without})
    assert main(["join"]) == 0
    assert "join is left out: no_such_module is not installed" in capsys.readouterr().out


def test_charts_show_the_published_tables() -> None:
    """`python -m tests.bench.charts` draws them anew."""
    drawn = charts.charts(charts.TABLES.read_text(encoding="utf-8"))
    assert drawn.keys() == {f"{name}.svg" for name in charts.CHARTS}
    assert {path.name: path.read_text(encoding="utf-8") for path in charts.FOLDER.iterdir()} == drawn
    page = (charts.TABLES.parent / "performance.md").read_text(encoding="utf-8")
    assert all(f"(images/performance/{name})" in page for name in drawn)


def test_a_chart_is_drawn_to_scale() -> None:
    rows = "| | work, s |\n| --- | --- |\n| aggarray | 1.0 (0.5 to 2.0) |\n| x (1 round) | 4 (4 to 4) |\n"
    text = f"### a-b: work <of> one; more\n\n{rows}"
    ((name, title, bars),) = charts.tables(text)
    assert (name, title) == ("a-b", "work <of> one")
    assert bars == [charts.Bar("aggarray", 1.0, 0.5, 2.0), charts.Bar("x", 4.0, 4.0, 4.0)]
    svg = charts.chart(title, bars)
    longest = charts.WIDTH - charts.BESIDE
    assert f'width="{longest:.1f}"' in svg and f'width="{longest / 4:.1f}"' in svg and "Work &lt;of&gt; one" in svg


def test_graphs_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.bench import graphs

    assert graphs.main(["--partitions", "20", "--each", "--no-time"]) == 0
    heads, _, *rows = capsys.readouterr().out.splitlines()
    assert "our layer, bytes" in heads and [row.split(" | ")[0] for row in rows] == 2 * [
        "| index",
        "| files",
        "| dask.array.zeros",
    ]
    index = dict(zip(heads.split(" | "), rows[0].split(" | "), strict=False))
    assert index["chunks"] == index["partitions"] == "20" and index["tasks"] == "28"


@pytest.mark.heavy
def test_clients_of_a_server_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn", reason="no uvicorn")
    from tests.bench import clients

    clients.main(["--size", "tiny", "--clients", "3", "--seconds", "1"])
    count, responses, wrong, *_ = capsys.readouterr().out.splitlines()[-1].strip("| ").split(" | ")
    assert (count, wrong) == ("3", "0") and int(responses) >= 3


@pytest.mark.heavy
def test_the_first_task_is_timed() -> None:
    from tests.bench import graphs

    index, files, zeros = graphs.rows(20, timed=True, each=False)
    assert index.first is not None and 0 < index.first < 60 and zeros.first is not None and files.first is None
