"""What is wrong with an index or files? ``aggarray check``."""

from typing import Any

import click

from aggarray.cli._common import echo_json, json_option, open_source, opening_options, source_argument


@click.command("check")
@source_argument
@click.option(
    "--checksum", is_flag=True, help="Compare the bytes at both ends of each file too (of a Zarr store: of its metadata)."
)
@opening_options
@json_option
def command(source: tuple[str, ...], checksum: bool, as_json: bool, opening: dict[str, Any]) -> None:
    """Look for what is wrong with an index or files.

    That is: gaps, holes, repeats, files that are lost, changed or damaged. Exit status 1 where there are problems.
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
