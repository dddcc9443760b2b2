"""The shell gives advice by options; each is the option of a real command, and stands for a real argument."""

import inspect
from dataclasses import fields
from pathlib import Path

import click
import pytest

import aggarray as aa
from aggarray.cli import commands, main
from aggarray.cli._hints import PARAMETERS, in_shell, options_of
from aggarray.export.extract import extract

pytestmark = pytest.mark.quick

COMMANDS = commands.list_commands(click.Context(commands))


def options(name: str) -> dict[str, click.Parameter]:
    """Return the options of a command by argument."""
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    return options_of(command.params)


def test_every_entry_is_an_argument_and_an_option() -> None:
    arguments = {*inspect.signature(aa.open).parameters, *inspect.signature(extract).parameters}
    for argument, parameter in PARAMETERS.items():
        assert argument in arguments
        assert [name for name in COMMANDS if parameter in options(name)], parameter


def test_every_option_of_opening_and_joining_is_an_argument() -> None:
    arguments = {
        *inspect.signature(aa.open).parameters,
        *(f.name for f in fields(aa.Rules)),
        *("preset", "title", "check", "layout", "profile", "where", "group_by"),
    }
    parameters = {*PARAMETERS.values(), "as_json", "output"}
    assert {*options("view")} - parameters <= arguments


@pytest.mark.parametrize(
    ("command", "hint", "words"),
    [
        ("info", "restore it, or open with missing='fill'", "restore it, or open with --fill-missing"),
        ("info", "name its address in roots=", "name its address in --root"),
        ("info", "give credentials in storage_options=", "give credentials in --storage"),
        (
            "info",
            "name its folder in roots= if you trust it, or open with relocate=",
            "--root if you trust it, or open with --relocate",
        ),
        ("explain", "give Rules(overlap='first') or 'last'", "give --overlap first or 'last'"),
        ("explain", "Rules(order={'lat': 'name'}) joins it by name", "--order lat=name joins it by name"),
        ("explain", 'pass rules=aa.Rules(units={"pr": ...}) or leave it out', "pass --units pr=... or leave it out"),
        ("aggregate", "open with Rules(trust='verify')", "open with --trust verify"),
        ("extract", "open with Rules(trust='verify')", "open with --trust verify"),
        ("check", "open with Rules(trust='verify')", "open with Rules(trust='verify')"),
        ("extract", "give one of its values, or method='nearest'", "give one of its values, or --method nearest"),
        ("extract", "give another name, or pass exists='overwrite'", "give another name, or pass --overwrite"),
        ("info", "give one of its values, or method='nearest'", "give one of its values, or method='nearest'"),
        ("info", "give 0 <= start <= stop, roots == x, a.roots=3, or roots=[...]", "roots == x, a.roots=3, or roots=[...]"),
    ],
)
def test_advice_in_options_of_the_command(command: str, hint: str, words: str) -> None:
    assert in_shell(hint, options(command)).endswith(words)


def test_errors_of_commands_name_their_options(
    tmp_path: Path, sample_archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["extract", str(sample_archive), "--sel", "lat=7", "-o", str(tmp_path / "a.nc")])
    error = capsys.readouterr().err
    assert "--method nearest" in error and "method=" not in error and error.count("\n") == 1
