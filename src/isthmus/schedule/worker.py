"""Evaluating now, or on the worker thread: `async_eval` hands its nodes over and returns.

One thread evaluates in the order it was asked. What goes wrong there is kept, and raised by the next call that waits.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import Final

from isthmus.graph.node import Node, where_made
from isthmus.schedule.run import evaluate as evaluate_now

MOST_LINES: Final = 4  # that an error names


class Worker:
    """The thread, its queue, and the first error that nobody has been told of."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[list[Node]] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None
        self.idle = threading.Condition()
        self.waiting = 0
        self.error: BaseException | None = None

    def loop(self) -> None:
        while True:
            nodes = self.queue.get()
            try:
                evaluate_now(nodes)
            except BaseException as error:
                keep(error, nodes)
            del nodes
            with self.idle:
                self.waiting -= 1
                self.idle.notify_all()


_worker = Worker()


def start(nodes: list[Node]) -> None:
    """Evaluate `nodes` on the worker."""
    w = _worker
    if w.thread is None:
        w.thread = threading.Thread(target=w.loop, name="isthmus-worker", daemon=True)
        w.thread.start()
    with w.idle:
        w.waiting += 1
    w.queue.put(nodes)


def enqueue(nodes: list[Node]) -> None:
    """Evaluate nodes of GPUs, which only enqueues them; what goes wrong is kept for the next call that waits."""
    if _worker.waiting:
        start(nodes)
        return
    try:
        evaluate_now(nodes)
    except Exception as error:
        keep(error, nodes)


def keep(error: BaseException, nodes: list[Node]) -> None:
    """Keep the first error that nobody has been told of, and say which eval it belongs to."""
    if _worker.error is None:
        lines = list(dict.fromkeys([where_made(node) for node in nodes]))
        error.add_note(f"It came of an async_eval of arrays made at: {'; '.join(lines[:MOST_LINES])}{', ...' if len(lines) > MOST_LINES else ''}")
        _worker.error = error


def wait() -> None:
    """Wait for all that was started; raises what went wrong there."""
    w = _worker
    if w.waiting:
        with w.idle:
            w.idle.wait_for(lambda: w.waiting == 0)
    if w.error is not None:
        error, w.error = w.error, None
        raise error


def evaluate(nodes: list[Node]) -> None:
    """Evaluate `nodes` here, after what was started."""
    if _worker.waiting or _worker.error is not None:
        wait()
    evaluate_now(nodes)


def _forget() -> None:
    global _worker
    _worker = Worker()


os.register_at_fork(after_in_child=_forget)
