"""Calls that rank 0 assigns to other ranks on demand.

Each rank has two calls, so that it need not wait while rank 0 runs one itself.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from aggarray.errors import ExchangeError
from aggarray.mpi.transport.base import CALL, Link

#: Number of calls that a rank has at the same time.
CALLS = 2


class _Call:
    """Future of a call on some rank; ``outcome``: its result and error."""

    def __init__(self, executor: RankExecutor, content: bytes) -> None:
        self.content, self._executor = content, executor
        self.outcome: tuple[Any, Exception | None] | None = None

    def result(self) -> Any:
        """Return the result of the call, or raise its error."""
        while self.outcome is None:
            self._executor.advance()
        value, error = self.outcome
        if error is not None:
            raise error
        return value


class RankExecutor:
    """Executor of rank 0, whose calls run on the first ``size`` ranks."""

    def __init__(self, link: Link, size: int) -> None:
        self._link, self.size = link, min(size, link.size)
        self._queue: deque[_Call] = deque()
        self._sends: list[_Send] = []
        self._receivers = {rank: _Receiver(link, rank) for rank in range(1, self.size)}
        self._running: dict[int, deque[_Call]] = {rank: deque() for rank in self._receivers}

    def submit(self, function: Callable[..., Any], *arguments: Any) -> _Call:
        """Queue a call."""
        call = _Call(self, pickle.dumps((function, arguments), protocol=5))
        self._queue.append(call)
        return call

    def advance(self) -> None:
        """Assign calls to ranks; then receive a message, or run one call here."""
        for rank, running in self._running.items():
            while self._queue and len(running) < CALLS:
                running.append(self._queue.popleft())
                self._sends += _send(self._link, running[-1].content, rank)
        while self._sends and (sent := self._link.test_any([request for request, _ in self._sends])) is not None:
            del self._sends[sent]
        ranks = [rank for rank, running in self._running.items() if running]
        requests = [self._receivers[rank].request for rank in ranks]
        number = self._link.test_any(requests) if self._queue else self._link.wait_any(requests)
        if number is not None:
            content = self._receivers[ranks[number]].take()
            if content is not None:
                self._running[ranks[number]].popleft().outcome = pickle.loads(content)
        elif self._queue:
            call = self._queue.popleft()
            call.outcome = _outcome_of(call.content)

    def close(self) -> None:
        """Let all other ranks return from `serve`."""
        self._queue.clear()
        # The ranks wait until their results are received.
        while any(self._running.values()):
            self.advance()
        for rank in range(1, self._link.size):
            self._sends += _send(self._link, b"", rank)
        self._link.wait_all([request for request, _ in self._sends])


def serve(link: Link) -> None:
    """Run the calls of rank 0 until it closes its executor."""
    receiver, sends = _Receiver(link, 0), deque[list[_Send]]()
    while True:
        content = None
        while content is None:
            link.wait_all([receiver.request])
            content = receiver.take()
        if not content:
            break
        sends.append(_send(link, _pickled_outcome(content), 0))
        if len(sends) > CALLS:
            link.wait_all([request for request, _ in sends.popleft()])
    link.wait_all([request for several in sends for request, _ in several])


def _outcome_of(content: bytes) -> tuple[Any, Exception | None]:
    try:
        function, arguments = pickle.loads(content)
        return function(*arguments), None
    except Exception as error:  # rank 0 raises it
        return None, error


def _pickled_outcome(content: bytes) -> bytes:
    value, error = _outcome_of(content)
    try:
        pickled = pickle.dumps((value, error), protocol=5)
        if error is not None:
            pickle.loads(pickled)  # fails for errors with more parameters than `args`
        return pickled
    except Exception as unpickled:  # pickling runs foreign code
        return pickle.dumps((None, ExchangeError(f"{type(error or unpickled).__name__}: {error or unpickled}")), protocol=5)


#: Request of a message, and its bytes, which must stay until it is done.
_Send = tuple[Any, np.ndarray]


def _send(link: Link, content: bytes, rank: int) -> list[_Send]:
    """Start to send the length and the bytes of a message."""
    parts = [np.array([len(content)], np.int64).view(np.uint8), *([np.frombuffer(content, np.uint8)] if content else [])]
    return [(link.send(part, rank, CALL), part) for part in parts]


class _Receiver:
    """Receiver of the messages of a rank, each a length and its bytes."""

    def __init__(self, link: Link, rank: int) -> None:
        self._link, self._rank = link, rank
        self._request: Any = None
        self._buffer, self._has_length = np.zeros(8, np.uint8), False

    @property
    def request(self) -> Any:
        """The request of the next part of a message."""
        if self._request is None:
            self._request = self._link.receive(self._buffer, self._rank, CALL)
        return self._request

    def take(self) -> bytes | None:
        """Return the message once its request is done; None after its length."""
        self._request = None
        length = 0 if self._has_length else int(self._buffer.view(np.int64)[0])
        content = self._buffer.tobytes() if self._has_length else b""
        self._has_length = length > 0
        self._buffer = np.zeros(length or 8, np.uint8)
        return None if length else content
