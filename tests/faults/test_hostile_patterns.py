"""Texts of files and servers cannot make the package's regular expressions slow. Each gets adversarial texts.

A separate process applies them and times out after far more time than needed. Regular expressions that users pass in rules are
not tested.
"""

import subprocess
import sys

import pytest

import aggarray as aa
from aggarray.cf import units
from aggarray.cf.units import calendars
from tests.support.paths import ROOT

#: Each line is executed; an error of aggarray or a ValueError is a valid result.
LINES = r"""
units.is_reference_time("days" + " " * n + "x")
units.is_reference_time("days since " * n)
calendars.epoch("days" + " " * n + "since" + " " * n + "2000")
calendars.epoch("days since 2000-01-01 00:00:0." + "0" * n)
calendars.epoch("days since 2000" + "-1" * n)
calendars.epoch("days since 2000-01-01 0:0 +" + "1" * n)
udunits.signature("0" * n + "x")
udunits.signature("0." + "0" * n + "x")
udunits.signature("0 " * n)
udunits.signature("m." * 10_000)
cfa04.parse_part("[" * n)
cfa04.parse_part("[" + "1," * n)
cfa04.parse_part("[[" + "1" * n + "]]")
cfa04.parse_part("[[" + "1, " * n + "x]]")
cfa04.parse_part("(1)" * n)
templates.render("{{" * n, {}, {})
templates.render("{{'" + "%" * 100 + "' % 1}}", {}, {})
re.search(kerchunk._KEYS, b'"refs"' + b" " * n)
re.search(kerchunk._KEYS, b'"refs" ' * n)
web._LINK.findall("<a " * n)
web._LINK.findall("<a" + " " * n)
web._LINK.findall("<a href " * n)
web._LINK.findall("<a x=" + " href" * n)
filesystems.explain_error("s3://b/a", ValueError("key" * n))
filesystems.explain_error("s3://b/a", ValueError("token " * n))
uris.is_url("a" * n)
uris.resolve_uri("%2e%2e/" * n, "/data")
uris.path_map({"/a": "/b"}).applied("file:" * n)
urls.canonical("a" * n + "://")
urls.canonical("s3://" + "@" * n)
re.fullmatch(flattened._FLAT, "//rows of " * n)
rules.facet({"table_id": "Table" + " " * n}, "table_id")
types.parse_type("1 * " * 5 * n + "int8")
types.parse_type("'" + "\\" * n)
types.parse_type(" " * n)
interpretation._DATE.fullmatch("2000-01-01T" + "0" * n)
references.FileNames("/a")["%" * n]
references.FileNames("/a")["../" * n]
urls.canonical("zip://" + "::" * n)
without_credentials("&sig=" * n)
without_credentials("?" + "token" * n)
without_credentials("?" + "a_" * n + "=@://")
without_credentials("://a:" * n + "@")
masked("a" * n, {"x": "://:" * n, "y": "a=" * n, "z": "; " * n})
"""

HEAD = """
import re, sys, warnings
from aggarray.aggregate import rules
from aggarray.cf.labels import interpretation
from aggarray.cf import units
from aggarray.cf.units import calendars, udunits
from aggarray.formats import flattened
from aggarray.formats import kerchunk
from aggarray.formats.kerchunk import references, templates
from aggarray.index import uris
from aggarray.index.conventions import cfa04
from aggarray.memory import types
from aggarray.storage import urls
from aggarray.storage.remote import filesystems, web
from aggarray.errors import AggarrayError, without_credentials
from aggarray.storage.masking import masked
n = 200_000
for line in sys.stdin.read().splitlines():
    try:
        exec(line)
    except (AggarrayError, ValueError):
        pass
    print(line, flush=True)
"""


def test_patterns_take_linear_time() -> None:
    lines = [line for line in LINES.splitlines() if line]
    command = [sys.executable, "-c", HEAD]
    try:
        done = subprocess.run(
            command, input="\n".join(lines), capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
        )
        said, why = done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        said, why = (error.stdout or b"").decode(), "it takes for ever"
    assert said.splitlines() == lines, why


def test_reference_times_are_parsed() -> None:
    for text in ("days since 2000-01-01", "  days  since\t2000-01-01 00:00:0.25", "hours SINCE 1999-12-31 24"[:-3]):
        assert units.is_reference_time(text)
    assert not units.is_reference_time("days since") and not units.is_reference_time("dayssince 2000")
    quarter = calendars.epoch("days since 2000-01-01 00:00:0.25").microseconds
    assert quarter - calendars.epoch("days  since  2000-01-01").microseconds == 250_000
    with pytest.raises(aa.UnitsError):
        calendars.epoch("days since 2000-01-01 00:00:0." + "0" * 5000)
