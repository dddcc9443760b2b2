"""The demonstration runs and checks what it claims."""

import subprocess
import sys

from tests.support.paths import ROOT


def test_the_demo_checks_every_claim() -> None:
    done = subprocess.run([sys.executable, "-m", "sample_data.demo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("checked:") >= 10 and "WRONG" not in done.stdout
    assert done.stdout.rstrip().endswith("Everything that was claimed was checked.")
