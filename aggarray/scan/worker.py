"""Worker process of a scan, which runs tasks from standard input.

It writes one result per task to standard output. `aggarray.scan.workers` starts it as a plain subprocess, which is safe with
threads, MPI and scripts without a main guard.
"""

from __future__ import annotations

import os
import signal
import sys

from aggarray.errors import LIBRARY_ERRORS
from aggarray.formats import scan_one
from aggarray.options import set_options
from aggarray.scan.pickling import MARK, Receiver, Sender


def main() -> None:
    """Process tasks until standard input ends."""
    # The parent process ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Output that libraries print must not mix with the results.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    results.write(MARK)
    results.flush()
    receiver, sender = Receiver(sys.stdin.buffer), Sender(results)
    try:
        set_options(**receiver.receive())
        while True:
            tasks = receiver.receive()
            for following, task in enumerate(tasks, 1 - len(tasks)):
                result = scan_one(task)
                try:
                    sender.send(result, more=following < 0)
                except BrokenPipeError:
                    raise
                except LIBRARY_ERRORS:
                    # Attributes of plugin formats may not pickle; the parent scans such a file itself.
                    sender.send(None)
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the parent closed the stream


if __name__ == "__main__":
    main()
