"""The helper process of a scan: reads lists of paths from standard input, writes one result per path to standard output.

Run as ``python -m aggarray._scan``; a plain subprocess, so that scripts without a main guard, threads and MPI are safe.
"""

import os
import sys

from aggarray.scan import receive, scan_one, send


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Libraries that print must not disturb the answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    while True:
        try:
            paths = receive(sys.stdin.buffer)
        except EOFError:
            return
        for path in paths:
            send(answers, scan_one(path))


if __name__ == "__main__":
    main()
