"""Run a target under atheris: `python -m tests.fuzz TARGET [--minutes 10] [--all]`; `--keep` selects inputs for the tests.

The corpus grows in build/fuzz/TARGET from the seeds and tests/fuzz/corpus/TARGET. Findings are stored in build/fuzz/found,
under the name of the target. Arguments after `--` are passed to libFuzzer.
"""

import argparse
import importlib
import pkgutil
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

CORPUS = Path(__file__).resolve().parent / "corpus"
#: Limits of memory in bytes and of seconds per input.
_MEMORY, _SECONDS = 4 << 30, 10
#: Modules that no target uses, and modules that run on import.
_LEFT_OUT = ("aggarray.mpi", "aggarray.cli", "aggarray.display.report", "aggarray.__main__", "aggarray.scan.worker")


def _atheris() -> Any:
    try:
        import atheris
    except ImportError:
        sys.exit(
            "fuzzing needs atheris: pip install '.[fuzz]'; `pytest tests/project/test_fuzz.py` replays the corpus without it"
        )
    return atheris


def _instrumented(atheris: Any) -> None:
    """Import every module of aggarray with coverage instrumentation."""
    with atheris.instrument_imports(include=["aggarray"]):
        import aggarray

        for info in pkgutil.walk_packages(aggarray.__path__, "aggarray."):
            if not info.name.startswith(_LEFT_OUT):
                importlib.import_module(info.name)


def _arguments(given: list[str]) -> tuple[argparse.Namespace, list[str]]:
    more = given[given.index("--") + 1 :] if "--" in given else []
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz one reader of aggarray.")
    parser.add_argument("target", help="its name; see tests/fuzz/targets.py")
    parser.add_argument("--minutes", type=float, default=10, help="how long (10)")
    parser.add_argument("--all", action="store_true", help="go on after a finding: one input for each place where it came up")
    parser.add_argument("--keep", action="store_true", help="do not fuzz: put the best of what was gathered into the corpus")
    return parser.parse_args(given[: given.index("--")] if "--" in given else given), more


def _noting(target: Any, found: Path) -> Callable[[bytes], None]:
    """Return a function that runs a target and stores a finding before it raises."""
    known: set[str] = set()

    def one(data: bytes) -> None:
        try:
            target.run(data)
        except Exception as error:  # every other exception is a finding
            where = [
                f for f in traceback.extract_tb(error.__traceback__) if "/aggarray/" in f.filename or "/fuzz/" in f.filename
            ]
            place = f"{type(error).__name__}-{Path(where[-1].filename).stem}-{where[-1].lineno}" if where else "nowhere"
            if place not in known:
                known.add(place)
                (found / f"{target.name}-{place}").write_bytes(data)
                traceback.print_exc()

    return one


def main(given: list[str]) -> None:
    """Fuzz one target."""
    options, more = _arguments(given)
    atheris = None if options.keep else _atheris()
    if atheris is not None:
        _instrumented(atheris)
    from tests.fuzz.saving import keep
    from tests.fuzz.targets import TARGETS
    from tests.fuzz.trees import crossed

    if options.target not in TARGETS:
        sys.exit(f"{options.target!r} is no target: give one of {', '.join(TARGETS)}")
    target = TARGETS[options.target]
    grown, result, kept = ROOT / "build" / "fuzz" / target.name, ROOT / "build" / "fuzz" / "found", CORPUS / target.name
    for folder in (grown, result):
        folder.mkdir(parents=True, exist_ok=True)
    for name, data in target.seeds().items():
        (grown / f"seed_{name}").write_bytes(data)
    if atheris is None:
        print(f"{keep(target, grown, kept)} inputs in {kept}")
        return
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    one = _noting(target, result) if options.all else target.run
    flags = [
        f"-max_total_time={options.minutes * 60:.0f}",
        f"-timeout={_SECONDS}",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
    ]
    flags += [f"-max_len={target.longest}", f"-artifact_prefix={result}/{target.name}-", *more]
    folders = [str(grown), *([str(kept)] if kept.is_dir() else [])]
    own = {} if target.mutate is None else {"custom_mutator": target.mutate}
    if target.trees:
        own["custom_crossover"] = crossed
    atheris.Setup([sys.argv[0], *flags, *folders], one, **own)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
