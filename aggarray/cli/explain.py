"""Command ``aggarray explain``: show joins and refusals."""

import os
from typing import Any

import click

from aggarray.cli import _common as common


@click.command("explain")
@common.source_argument
@common.variables_option
@common.rules_options
@common.opening_options
@common.json_option
def command(as_json: bool, **arguments: Any) -> None:
    """Explain how the arrays of SOURCE were joined, or why not.

    The output includes conversions on reading, skipped files and missing parts.

    The exit status is 1 if there are problems: gaps, holes, duplicate files, unreadable files.
    """
    from aggarray.display import facts

    explanation = facts.explanation(common.open_arguments(arguments))
    if as_json:
        common.echo_json(explanation)
    else:
        refusals = [f"{' and '.join(dict.fromkeys(r['arrays']))} [{r['rule']}]: {r['reason']}" for r in explanation["refusals"]]
        variables = [f": variable {s['variable']!r}" if s["variable"] else "" for s in explanation["skipped"]]
        skipped = [f"{s['file']}{v}: {s['reason']}" for s, v in zip(explanation["skipped"], variables, strict=True)]
        problems = [f"[{p['kind']}] {p['message']}" for p in explanation["problems"]]
        lines = [line for array in explanation["arrays"] for line in [*_array_lines(array), ""]]
        for title, texts in (("not joined", refusals), ("skipped", skipped), ("problems", problems)):
            lines += [title, *(facts.printable(f"  {text}") for text in texts), ""] if texts else []
        click.echo("\n".join(lines).rstrip())
    if explanation["problems"]:
        raise SystemExit(1)


def _array_lines(array: dict[str, Any]) -> list[str]:
    from aggarray.aggregate.differences import common_folder
    from aggarray.display.facts import printable, sizes
    from aggarray.display.table import table

    shape = ", ".join(f"{d}: {n}" for d, n in zip(array["dimensions"], array["shape"], strict=True))
    which = f" [{array['which']}]" if array["which"] else ""
    lines = [printable(f"{array['name']}{which} ({shape}) {array['dtype']} {array['units'] or ''}".rstrip())]
    matrix, folder = array["partitions"], common_folder(array["paths"])
    holes = f", {matrix['missing']} missing" if matrix["missing"] else ""
    files = f"{array['files']} files in {folder or 'several folders'}" if array["files"] != 1 else array["paths"][0]
    counts = sizes(matrix["dimensions"], matrix["shape"])
    lines.append(printable(f"  partitions {counts}{holes}, from {files if array['files'] else 'memory'}"))
    if array["time"]:
        lines.append(f"  time {' to '.join(dict.fromkeys(array['time']))}")
    if array["conformed"]:
        rows = []
        for c in array["conformed"]:
            example = os.path.relpath(c["example"], folder) if c["example"] and folder else c["example"] or "in memory"
            rows.append([c["kind"], c["found"], c["master"], f"{c['count']} of {array['subarrays']}", example])
        text = table(rows, ["conformed", "in the file", "in the array", "sub-arrays", "such as"])
        lines += ["  " + line for line in text.splitlines()]
    return lines
