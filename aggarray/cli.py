"""Which commands does a shell have? ``aggregate``, ``append``, ``check``, ``info``, ``explain`` and ``distribute``.

Facts go to standard output, as text or with ``--json`` as data; progress (on a terminal only) and errors go to standard
error. Exit status: 0 done, 1 an error, or problems that ``check`` or ``explain`` found, 2 wrong usage. A traceback appears
only with ``--debug``.
"""

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import click

from aggarray.errors import AggarrayError, ProtocolError

if TYPE_CHECKING:
    from aggarray.api import Aggregation


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="aggarray")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors (anywhere on the line).")
def commands(debug: bool) -> None:
    """One array out of many netCDF, HDF5 and Zarr files."""
    # `main` has taken --debug out of the line already: the option is here to be listed by --help.


def _source(command: Any) -> Any:
    """Add what every command that opens a source takes."""
    command = click.option("--json", "as_json", is_flag=True, help="Print data instead of text.")(command)
    command = click.option(
        "-v", "--variable", "variables", multiple=True, metavar="NAME", help="Keep only this variable (repeatable)."
    )(command)
    return click.argument("source", nargs=-1, required=True)(command)


def _open(source: Sequence[str], variables: Sequence[str]) -> "Aggregation":
    # The package's heavy parts load only here, so that --help answers at once.
    from aggarray.api import open as open_source

    return open_source(list(source), variables=list(variables) or None, progress=True if sys.stderr.isatty() else None)


@commands.command()
@_source
@click.option("-o", "--output", required=True, metavar="INDEX", help="The index file to write.")
@click.option("--convention", type=click.Choice(["CF-1.13", "CFA-0.4"]), default="CF-1.13", show_default=True)
@click.option("--absolute", is_flag=True, help="Name files by absolute URIs, not relative to the index.")
@click.option("--no-chunk-table", is_flag=True, help="Do not look up where in the files their chunks lie.")
def aggregate(source: tuple[str, ...], variables: tuple[str, ...], as_json: bool, output: str, **how: Any) -> None:
    """Join the files of SOURCE and save an index of them: it opens in milliseconds, here and in other software."""
    agg = _open(source, variables)
    _saved(
        agg, output, as_json, convention=how["convention"], relative=not how["absolute"], chunk_table=not how["no_chunk_table"]
    )


@commands.command()
@click.argument("index")
@click.argument("source", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print data instead of text.")
def append(index: str, source: tuple[str, ...], as_json: bool) -> None:
    """Add the files of SOURCE to an INDEX; only new or changed files are read."""
    agg = _open((index,), ()).append(list(source), progress=True if sys.stderr.isatty() else None)
    _saved(agg, index, as_json, **agg._provenance.how)


def _saved(agg: "Aggregation", path: str, as_json: bool, **how: Any) -> None:
    """Save an index, and say what is in it and what other software will not see."""
    from aggarray import facts

    report = agg.save(path, **how)
    if as_json:
        found = {"index": path, "arrays": facts.aggregation_facts(agg), "problems": facts.problem_facts(report)}
        click.echo(json.dumps(found, indent=2))
        return
    files = facts.file_count(agg)
    click.echo(facts.printable(f"{path}: {len(agg)} array{'s' * (len(agg) != 1)} of {files} file{'s' * (files != 1)}"))
    for problem in report.problems:
        click.echo(facts.printable(f"for aggarray alone: {problem.message}"), err=True)
    _notes(agg, f"aggarray explain {path} says why")


@commands.command()
@click.argument("source", nargs=-1, required=True)
@click.option("--checksum", is_flag=True, help="Compare the bytes at both ends of each file too.")
@click.option("--json", "as_json", is_flag=True, help="Print data instead of text.")
def check(source: tuple[str, ...], checksum: bool, as_json: bool) -> None:
    """Look for what is wrong with an index or files: gaps, holes, repeats, files that are lost, changed or damaged.

    Exit status 1 where there are problems.
    """
    from aggarray import facts

    report = _open(source, ()).check(checksum=checksum)
    problems = facts.problem_facts(report)
    if as_json:
        click.echo(json.dumps({"ok": report.ok, "problems": problems}, indent=2))
    else:
        lines = [facts.printable(f"[{p['kind']}] {p['message']}") for p in problems]
        click.echo("\n".join(lines) if lines else "no problems")
    if problems:
        raise SystemExit(1)


@commands.command()
@_source
def info(source: tuple[str, ...], variables: tuple[str, ...], as_json: bool) -> None:
    """List the arrays of SOURCE: an index, files, folders or quoted patterns such as 'data/**/*.nc'."""
    from aggarray import facts

    agg = _open(source, variables)
    found = facts.aggregation_facts(agg)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    rows, repeated = [], any(fact["which"] for fact in found)
    for fact in found:
        matrix = (
            " x ".join(f"{n} {d}" for d, n in zip(fact["partitions"]["dimensions"], fact["partitions"]["shape"], strict=True))
            or "1"
        )
        missing = fact["partitions"]["missing"]
        times = " to ".join(dict.fromkeys(fact["time"] or ()))
        rows.append(
            [
                fact["name"],
                *([fact["which"]] if repeated else []),
                " ".join(fact["dimensions"]),
                fact["type"],
                fact["units"] or "",
                matrix + (f" ({missing} missing)" if missing else ""),
                times,
            ]
        )
    which = ["which"] if repeated else []
    click.echo(facts.table(rows, ["name", *which, "dimensions", "type", "units", "partitions", "time range"]))
    _notes(agg, "aggarray explain says why")


def _notes(agg: "Aggregation", hint: str) -> None:
    """Tell on standard error that there is more to know."""
    counts = [f"arrays that stayed apart: {len(agg.refusals)}"] if agg.refusals else []
    counts += [f"files or variables skipped: {len(agg.skipped)}"] if agg.skipped else []
    if counts:
        click.echo(f"{', '.join(counts)} ({hint})", err=True)


@commands.command()
@_source
def explain(source: tuple[str, ...], variables: tuple[str, ...], as_json: bool) -> None:
    """Say how the arrays of SOURCE were joined, what is conformed on reading, why others stayed apart, and what is missing.

    Exit status 1 where there are problems: gaps, holes, repeated files, files that cannot be read.
    """
    from aggarray import facts

    found = facts.explanation(_open(source, variables))
    click.echo(json.dumps(found, indent=2) if as_json else _explained(found))
    if found["problems"]:
        raise SystemExit(1)


def _explained(found: dict[str, Any]) -> str:
    """Return an explanation as text: arrays, what stayed apart, what was skipped, what is wrong."""
    from aggarray.facts import printable

    lines = [line for array in found["arrays"] for line in [*_explained_array(array), ""]]
    if found["refusals"]:
        apart = (f"  {' and '.join(dict.fromkeys(r['arrays']))} [{r['rule']}]: {r['reason']}" for r in found["refusals"])
        lines += ["stayed apart", *map(printable, apart), ""]
    if found["skipped"]:
        names = (
            f"  {s['file']}{': variable ' + repr(s['variable']) if s['variable'] else ''}: {s['reason']}"
            for s in found["skipped"]
        )
        lines += ["skipped", *map(printable, names), ""]
    if found["problems"]:
        lines += ["problems", *(printable(f"  [{p['kind']}] {p['message']}") for p in found["problems"])]
    return "\n".join(lines).rstrip()


def _explained_array(array: dict[str, Any]) -> list[str]:
    """Return the lines on one array: its shape, its partitions, its time range and what reading conforms."""
    from aggarray.aggregate.apart import common_folder
    from aggarray.facts import printable, table

    sizes = ", ".join(f"{d}: {n}" for d, n in zip(array["dimensions"], array["shape"], strict=True))
    which = f" [{array['which']}]" if array["which"] else ""
    lines = [printable(f"{array['name']}{which} ({sizes}) {array['dtype']} {array['units'] or ''}".rstrip())]
    matrix = array["partitions"]
    count = " x ".join(f"{n} {d}" for d, n in zip(matrix["dimensions"], matrix["shape"], strict=True)) or "1"
    holes = f", {matrix['missing']} missing" if matrix["missing"] else ""
    folder = common_folder(array["paths"])
    files = f"{array['files']} files in {folder or 'several places'}" if array["files"] != 1 else array["paths"][0]
    lines.append(printable(f"  partitions {count}{holes}, from {files if array['files'] else 'memory'}"))
    if array["time"]:
        lines.append(f"  time {' to '.join(dict.fromkeys(array['time']))}")
    if array["conformed"]:
        head = ["conformed", "in the file", "in the array", "sub-arrays", "such as"]
        rows = [
            [
                c["kind"],
                c["found"],
                c["master"],
                f"{c['count']} of {array['subarrays']}",
                os.path.relpath(c["example"], folder) if c["example"] and folder else c["example"] or "in memory",
            ]
            for c in array["conformed"]
        ]
        lines += ["  " + line for line in table(rows, head).splitlines()]
    return lines


@commands.command()
@click.argument("source", nargs=-1, required=True)
@click.option("-v", "--variable", metavar="NAME", help="The variable; may be left out where there is one only.")
@click.option("-n", "--processes", type=click.IntRange(min=1), metavar="N", help="The number of processes.")
@click.option("--grid", metavar="NxM...", help="Processes along each dimension; by default all along the first.")
@click.option("--dist", metavar="b,c...", help="Block or cyclic, for each dimension; block by default.")
@click.option("--block-size", type=click.IntRange(min=1), metavar="N", help="Elements in a block of cyclic dimensions.")
@click.option("--partitions", type=click.Choice(["contiguous", "cost"]), help="Whole partitions per process instead.")
@click.option("--protocol", default="0.10.0", show_default=True, metavar="VERSION", help="The protocol's version.")
@click.option("--json", "as_json", is_flag=True, help="Print data instead of text.")
def distribute(source: tuple[str, ...], variable: str | None, processes: int | None, as_json: bool, **how: Any) -> None:
    """Say which process has what of an array: the dim_data of every rank, by the Distributed Array Protocol.

    Dimensions that --dist or --grid do not mention are not divided.
    """
    from aggarray import facts

    grid = _grid(how["grid"], processes)
    if how["partitions"] and (how["dist"] or how["block_size"]):
        raise click.UsageError("--partitions decides itself: leave --dist and --block-size out")
    agg = _open(source, [variable] if variable else ())
    if variable is None and len(agg) != 1:
        raise click.UsageError(f"several variables ({', '.join(agg.names)}): choose one by -v")
    array = agg[variable or agg.names[0]]
    if prod(grid[array.ndim :]) > 1:
        raise click.UsageError(f"{len(grid)} numbers in the grid for {array.ndim} dimensions: {' '.join(array.dimensions)}")
    wanted = facts.Wanted(grid, how["dist"], how["block_size"], how["partitions"])
    try:
        found = facts.distribution_facts(array, wanted, how["protocol"])
    except ProtocolError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(facts.table(facts.section_rows(found), ["rank", *found["dimensions"], "local shape"]))


def _grid(given: str | None, processes: int | None) -> tuple[int, ...]:
    """Return the process grid that the options mean, without the dimensions that they do not mention."""
    if given is None:
        if processes is None:
            raise click.UsageError("how many processes? Give -n, or --grid")
        return (processes,)
    try:
        grid = tuple(int(n) for n in given.lower().split("x"))
    except ValueError:
        grid = (0,)
    if min(grid) < 1:
        raise click.BadParameter(f"{given!r}: give numbers such as 2x2", param_hint="--grid")
    if processes is not None and prod(grid) != processes:
        raise click.BadParameter(f"{given} has {prod(grid)} processes, not {processes}", param_hint="--grid")
    return grid


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; errors are one line on standard error, with ``--debug`` anywhere on the line a traceback."""
    arguments, debug = _without_debug(list(sys.argv[1:] if arguments is None else arguments))
    try:
        commands.main(args=arguments, prog_name="aggarray")
    except AggarrayError as error:
        if debug:
            raise
        click.echo(f"aggarray: {error}", err=True)
        raise SystemExit(1) from None
    except OSError as error:
        _give_up_output()
        if debug:
            raise
        # Data files that do not open are AggarrayErrors: what names no file is the output, on a device that is full.
        text = str(error) if error.filename else f"the output cannot be written: {error.strerror or error}"
        click.echo(f"aggarray: {text}", err=True)
        raise SystemExit(1) from None


def _without_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """Take ``--debug`` out of the arguments, unless it is a name after ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [a for a in arguments[:end] if a != "--debug"]
    return options + arguments[end:], len(options) < end


def _give_up_output() -> None:
    """Send standard output nowhere: the interpreter would try to write the rest again when it ends, and complain."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    main()
