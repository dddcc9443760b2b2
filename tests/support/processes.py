"""Child processes, found in /proc: on Linux only."""

import os
from pathlib import Path


def children(process: int | None = None) -> set[int]:
    """Return the running children of a process, by default this one."""
    result = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # After the name, which may have spaces: the state and the parent.
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # the process has ended
        if int(parent) == (process or os.getpid()) and state != "Z":
            result.add(int(entry.name))
    return result
