"""Command ``aggarray check``: report problems of an index or files."""

from typing import Any

import click

from aggarray.cli._common import echo_json, json_option, open_source, opening_options, source_argument


@click.command("check")
@source_argument
@click.option("--checksum", is_flag=True, help="Also compare checksums of both ends of each file (Zarr: of the metadata).")
@opening_options
@json_option
def command(source: tuple[str, ...], checksum: bool, as_json: bool, opening: dict[str, Any]) -> None:
    """Report problems of an index or files.

    Problems are gaps, holes, duplicates, and files that are missing, changed or damaged. The exit status is 1 if there are
    problems.
    """
    from aggarray.display import facts

    report = open_source(source, opening=opening).check(checksum=checksum)
    problems = facts.problem_facts(report)
    if as_json:
        echo_json({"ok": report.ok, "problems": problems})
    else:
        lines = [facts.printable(f"[{p['kind']}] {p['message']}") for p in problems]
        click.echo("\n".join(lines) if lines else "no problems")
    if problems:
        raise SystemExit(1)
