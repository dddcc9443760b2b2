"""What a fresh process imports and opens: measurement of its start.

Scripts run with the arguments in ``sys.argv[1:]``, in the root of the project, so that they import the package beside it.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.paths import ROOT

#: Separates the output of a script from what is printed when its process ends.
_MARK = "\n--- start ---\n"
_MODULES = f"import atexit, sys; atexit.register(lambda: print({_MARK!r} + '\\n'.join(sys.modules)))\n"
_OPENED = f"""
import atexit, sys
def _start():
    opened = []
    sys.addaudithook(lambda event, args: event == "open" and isinstance(args[0], str) and opened.append(args[0]) or None)
    atexit.register(lambda: print({_MARK!r} + "\\n".join(opened)))
_start()
"""
_SUCCEEDED = re.compile(r'open(?:at)?\([^"]*"((?:[^"\\]|\\.)*)".* = \d+')


def run_script(script: str, *arguments: str, seconds: float = 120) -> str:
    """Run a script in a fresh process and return its output."""
    return _run([sys.executable, "-c", script, *arguments], seconds)


def _run(command: list[str], seconds: float = 120) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_of(script: str, *arguments: str) -> set[str]:
    """Return the modules that a script imports, beside those of an empty interpreter.

    >>> modules_of("import colorsys")
    {'colorsys'}
    """
    return _modules(script, *arguments) - _modules_of_nothing()


def _modules(script: str, *arguments: str) -> set[str]:
    return set(run_script(_MODULES + script, *arguments).rpartition(_MARK)[2].split())


@cache
def _modules_of_nothing() -> set[str]:
    return _modules("pass")


def ours(modules: set[str]) -> set[str]:
    """Return the modules of aggarray."""
    return {name for name in modules if name.partition(".")[0] == "aggarray"}


def opens_of(script: str, *arguments: str) -> list[str]:
    """Return the files that the Python code of a script opens, once for each time."""
    return run_script(_OPENED + script, *arguments).rpartition(_MARK)[2].splitlines()


def system_opens_of(script: str, *arguments: str) -> list[str] | None:
    """Return the files, without folders, that a process opens, by its system calls; None without strace."""
    if (strace := shutil.which("strace")) is None:
        return None
    with TemporaryDirectory() as folder:
        log = Path(folder) / "calls"
        _run([strace, "-f", "-s", "4096", "-e", "trace=open,openat", "-o", str(log), sys.executable, "-c", script, *arguments])
        calls = [line for line in log.read_text().splitlines() if "O_DIRECTORY" not in line]
        return [match[1] for line in calls if (match := _SUCCEEDED.search(line))]


def besides_data(opened: list[str], is_data: Callable[[str], bool]) -> list[str]:
    """Return the opened files except data; devices and the process table do not count."""
    return [path for path in opened if not path.startswith(("/dev/", "/proc/", "/sys/")) and not is_data(path)]
