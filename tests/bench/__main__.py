"""The benchmarks: ``make bench``, or ``python -m tests.bench [NAME ...]``; prints Markdown tables."""

import argparse
import os
import platform
import sys
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version

from tests.bench import growth
from tests.bench.harness import Benchmark, BenchmarkError, benchmarks, present, run, table


def main(arguments: list[str] | None = None) -> int:
    """Run the named benchmarks, all by default; return 1 if one fails."""
    known = benchmarks()
    every = [*known, growth.NAME]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure aggarray and its peers in turn.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(every)}, or a pattern; all by default")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (default: %(default)s)")
    parser.add_argument("--size", choices=("full", "tiny"), default="full", help="tiny: to see that it works")
    options = parser.parse_args(arguments)
    names = [name for name in every if not options.names or any(fnmatchcase(name, given) for given in options.names)]
    unknown = [given for given in options.names if not any(fnmatchcase(name, given) for name in every)]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}: there is {', '.join(every)}")
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: give at least 1")
    print(machine(), flush=True)
    failed = False
    for name in names:
        try:
            if name == growth.NAME:
                shown = [growth.tables(growth.run(options.size, options.repeats, _say))]
            else:
                shown = _compared(known[name], options.size, options.repeats)
        except BenchmarkError as error:
            failed = True
            print(error, file=sys.stderr)
            continue
        print("", *shown, sep="\n", flush=True)
    return int(failed)


def _compared(benchmark: Benchmark, size: str, repeats: int) -> list[str]:
    """Return the table of a benchmark, and a line for each contestant that is left out."""
    benchmark, absent = present(benchmark)
    measured = run(benchmark, size, repeats, _say) if benchmark.contestants else []
    return [*([table(benchmark, size, measured)] if measured else []), *(f"\n{line}" for line in absent)]


def machine() -> str:
    """Describe the machine in one line."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {platform.machine()}, Python {platform.python_version()}, {', '.join(_versions())}"


def _versions() -> list[str]:
    result = []
    for package in ("numpy", "netCDF4", "h5py", "zarr", "xarray", "dask", "hidefix", "tensorstore"):
        try:
            result.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            result.append(f"no {package}")
    return result


def _say(text: str) -> None:
    """Print progress on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
