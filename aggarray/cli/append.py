"""Command ``aggarray append``: add files to an index."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Any

import click

from aggarray.cli import _common as common
from aggarray.cli._resuming import resumable, resume_option
from aggarray.errors import AggarrayError, MissingFileError


@click.command("append")
@click.argument("index", type=click.Path())
@common.source_argument
@resume_option
@click.option("--where", multiple=True, hidden=True)  # refused with advice
@common.access_options
@common.json_option
def command(index: str, resume: bool, **arguments: Any) -> None:
    """Add the files of SOURCE to an INDEX.

    This reads only new and changed files. During the scan, INDEX.partial contains the files scanned so far; it is removed
    when the index is saved.
    """
    if arguments["where"]:
        hint = "an index keeps the selection it was made with; give --where to `aggarray aggregate`"
        raise click.UsageError(f"--where does not apply to append; {hint}")
    _check_index(index, arguments["source"])
    before = common.open_arguments({**arguments, "source": (index,)})
    with resumable(index, resume, before._provenance.rules.trust):
        agg = before.append(list(arguments["source"]), progress=common.progress_bar())
        common.save(agg, index, arguments, **agg._provenance.how)


def _check_index(index: str, source: Sequence[str]) -> None:
    """Raise UsageError, in words for swapped arguments, unless it is an index."""
    from aggarray.formats import identify
    from aggarray.index.saving import may_be_replaced
    from aggarray.storage.files import given_path
    from aggarray.storage.urls import is_remote

    path = given_path(index)
    if is_remote(path) or may_be_replaced(path):
        return
    hint = "the first argument must be an index, which `aggarray aggregate` makes"
    if not os.path.lexists(path):
        raise MissingFileError("no such file", path=index, hint=hint)
    try:
        hint = f"it looks like a data file ({identify(path).name}); {hint}"
    except AggarrayError:
        hint = f"it is {'a folder' if os.path.isdir(path) else 'neither an index nor a data file'}; {hint}"
    swapped = [name for name in source if not is_remote(given_path(name)) and may_be_replaced(given_path(name))]
    others = [index, *(name for name in source if name not in swapped[:1])]
    hint += f". {swapped[0]} is one: write aggarray append {shlex.join([swapped[0], *others])}" if swapped else ""
    raise click.UsageError(str(AggarrayError("not an index", path=index, hint=hint)))
