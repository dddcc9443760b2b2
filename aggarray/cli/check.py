"""Command ``aggarray check``: report problems of an index or files."""

from __future__ import annotations

from typing import Any

import click

from aggarray.cli import _common as common


@click.command("check")
@common.source_argument
@click.option("--checksum", is_flag=True, help="Also compare checksums of both ends of each file (Zarr: of the metadata).")
@click.option("--layout", is_flag=True, help="Check instead how files store values: chunks, filters, metadata, names.")
@click.option("--profile", metavar="NAME|FILE.toml", help="Limits of --layout: default, cmip7, cloud or a TOML file.")
@common.group_option
@common.opening_options
@common.json_option
def command(checksum: bool, layout: bool, profile: str | None, group_by: list[str], as_json: bool, **arguments: Any) -> None:
    """Report problems of an index or files.

    Problems are gaps, holes, duplicates, and files that are missing, changed or damaged; with --layout, what a profile wants
    otherwise, and the line that mends it. The exit status is 1 if there are problems.
    """
    from aggarray.display import facts
    from aggarray.display.refusals import finding_list, problem_table
    from aggarray.display.table import terminal_width

    limits = common.layout_profile(layout, profile)
    if checksum and layout:
        raise click.UsageError("--layout compares no checksums; leave out --checksum")
    agg = common.open_arguments(arguments)
    report = agg.check(checksum=checksum) if limits is None else common.check_layout(agg, limits, arguments)
    problems = facts.problem_facts(report)
    if group_by:
        common.echo_groups(agg, group_by, report.problems, as_json)
    elif as_json:
        about = {} if limits is None else {"profile": limits.name}
        common.echo_json({"ok": report.ok, **about, "problems": problems})
    elif problems and limits is not None:
        click.echo(finding_list(report.problems))
    else:
        click.echo(problem_table(report.problems, terminal_width()) if problems else "no problems")
        if agg.refusals or agg.skipped:
            from aggarray.cli._notes import echo_notes

            echo_notes(agg, "run aggarray explain for the reasons", skipped=False)
    if problems:
        raise SystemExit(1)
