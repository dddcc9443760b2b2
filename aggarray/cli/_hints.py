"""Advice of errors, with options of the shell instead of arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import click

#: The parameter of a command for an argument of another name.
PARAMETERS = {"exists": "overwrite", "missing": "fill_missing", "storage_options": "storage"}
_TEXT = r"'[^']*'|\"[^\"]*\""
_VALUE = rf"\{{(?:{_TEXT}): (?:{_TEXT}|\.\.\.|-?[\w.]+)\}}|{_TEXT}|\.\.\.|(?![\w(\[{{=])"
_ARGUMENT = rf"(?<![\w.])(\w+)=({_VALUE})"
_RULES = re.compile(rf"(?:rules=)?(?:\w+\.)?Rules\({_ARGUMENT}\)")
_BARE = re.compile(_ARGUMENT)
_FIRST = re.compile(r"\w+(?= names |=)")


def options_of(parameters: Iterable[click.Parameter]) -> dict[str, click.Parameter]:
    """Return the options of a command by their arguments in Python."""
    own: dict[str, click.Parameter] = {p.name or "": p for p in parameters if isinstance(p, click.Option)}
    return own | {argument: own[name] for argument, name in PARAMETERS.items() if name in own}


def in_shell(hint: str, options: Mapping[str, click.Parameter]) -> str:
    """Return advice with options in place of arguments that have one.

    >>> options = options_of([click.Option(["--fill-missing"], is_flag=True), click.Option(["--order"])])
    >>> in_shell("open with missing='fill', or Rules(order={'lat': 'name'}), or x='y'", options)
    "open with --fill-missing, or --order lat=name, or x='y'"
    """

    def option(match: re.Match[str]) -> str:
        parameter = options.get(match[1])
        if not isinstance(parameter, click.Option):
            return match[0]
        value = "" if parameter.is_flag else re.sub(r"[{}'\"]", "", match[2]).replace(": ", "=")
        return f"{parameter.opts[-1]} {value}".rstrip()

    return _BARE.sub(option, _RULES.sub(option, hint))


def option_first(message: str, options: Mapping[str, click.Parameter]) -> str:
    """Replace an argument at the beginning of a message with its option.

    >>> option_first("separate_by names 'x'", options_of([click.Option(["--separate-by"])]))
    "--separate-by names 'x'"
    >>> option_first("chunks={'time': 0}: 0 is not a size", options_of([click.Option(["--chunks"])]))
    '--chunks time=0: 0 is not a size'
    """
    if (whole := _BARE.match(message)) and whole[2].startswith("{"):
        return in_shell(whole[0], options) + message[whole.end() :]
    argument = _FIRST.match(message)
    parameter = options.get(argument[0]) if argument else None
    return message if argument is None or parameter is None else parameter.opts[-1] + message[argument.end() :]
