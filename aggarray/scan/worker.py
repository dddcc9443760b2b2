"""The helper process of a scan: reads tasks from standard input, writes one result for each to standard output.

`aggarray.scan.workers` runs it as a plain subprocess, so that scripts without a main guard, threads and MPI are safe.
"""

import os
import signal
import sys

from aggarray.formats.base import LIBRARY_ERRORS
from aggarray.options import set_options
from aggarray.scan.pickling import MARK, Receiver, Sender
from aggarray.scan.workers import scan_one


def main() -> None:
    """Answer until standard input ends."""
    # Whoever started it decides when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Libraries that print must not disturb the answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    answers.write(MARK)
    answers.flush()
    receiver, sender = Receiver(sys.stdin.buffer), Sender(answers)
    try:
        set_options(**receiver.receive())
        while True:
            for task in receiver.receive():
                _answer(sender, scan_one(task))
    except (EOFError, BrokenPipeError):
        os._exit(0)  # nobody listens any more


def _answer(sender: Sender, found: object) -> None:
    try:
        sender.send(found)
    except BrokenPipeError:
        raise
    except LIBRARY_ERRORS:
        # Attributes of formats of other packages may not pickle; whoever asked looks at the file itself.
        sender.send(None)


if __name__ == "__main__":
    main()
