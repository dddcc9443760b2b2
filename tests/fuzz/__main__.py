"""Run a target under atheris: `python -m tests.fuzz TARGET [--minutes 10]`.

The corpus grows in build/fuzz/TARGET, from the seeds and what tests/fuzz/corpus/TARGET has; an input that is a finding is left in
build/fuzz/found, under the name of its target. What follows `--` goes to libFuzzer.
"""

import argparse
import importlib
import pkgutil
import resource
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).resolve().parent / "corpus"
#: Bytes of memory, and seconds for one input.
_MEMORY, _SECONDS = 4 << 30, 10
#: Not read by any target; and modules that run when they are imported.
_LEFT_OUT = ("aggarray.mpi", "aggarray.cli", "aggarray.report", "aggarray.transport", "aggarray.__main__", "aggarray._scan")


def _atheris() -> Any:
    try:
        import atheris
    except ImportError:
        sys.exit(
            "fuzzing needs atheris: pip install 'aggarray[fuzz]'; `pytest tests/test_fuzz.py` replays the corpus without it"
        )
    return atheris


def _instrumented(atheris: Any) -> None:
    """Import aggarray so that the fuzzer sees which of its branches are taken: all modules, those found by listing too."""
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
    return parser.parse_args(given[: given.index("--")] if "--" in given else given), more


def main(given: list[str]) -> None:
    """Fuzz one target."""
    options, more = _arguments(given)
    atheris = _atheris()
    _instrumented(atheris)
    from tests.fuzz.targets import TARGETS
    from tests.fuzz.trees import crossed

    if options.target not in TARGETS:
        sys.exit(f"{options.target!r} is no target: give one of {', '.join(TARGETS)}")
    target = TARGETS[options.target]
    grown, found = ROOT / "build" / "fuzz" / target.name, ROOT / "build" / "fuzz" / "found"
    grown.mkdir(parents=True, exist_ok=True)
    found.mkdir(exist_ok=True)
    for name, data in target.seeds().items():
        (grown / f"seed_{name}").write_bytes(data)
    kept = CORPUS / target.name
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))

    def one(data: bytes) -> None:
        target.run(data)

    flags = [
        f"-max_total_time={options.minutes * 60:.0f}",
        f"-timeout={_SECONDS}",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
    ]
    flags += [f"-max_len={target.longest}", f"-artifact_prefix={found}/{target.name}-", *more]
    folders = [str(grown), *([str(kept)] if kept.is_dir() else [])]
    own = {} if target.mutate is None else {"custom_mutator": target.mutate}
    if target.trees:
        own["custom_crossover"] = crossed
    atheris.Setup([sys.argv[0], *flags, *folders], one, **own)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
