"""Ctrl-C held back while a plan is enqueued: what is half enqueued may have overwritten leaves, and could not begin anew.

Python calls signal handlers between any two steps of the main thread's interpreter, so which launches were made would not
be known to whoever catches the exception. So the handler is another one meanwhile: it takes note, and the one before is
called when the plan's results are in place. Both changes of the handler together take 0.6 us.
"""

from __future__ import annotations

import importlib
import signal
import threading
from typing import Any, Final

_signal: Final[Any] = importlib.import_module("_signal")  # without the enumerations that `signal` makes, which take 6 us
_NUMBER: Final = int(signal.SIGINT)


class Interrupts:
    """Of the main thread; in others nothing is ever interrupted."""

    def __init__(self) -> None:
        self.before: Any = None
        self.noted = False

    def hold(self) -> bool:
        """From here to `release` Ctrl-C waits; whether it did not already."""
        if self.before is None and threading.get_ident() == threading.main_thread().ident:
            before = _signal.getsignal(_NUMBER)
            if callable(before):
                _signal.signal(_NUMBER, self.note)
                self.before = before
                return True
        return False

    def note(self, number: int, frame: Any) -> None:
        self.noted = True

    def release(self) -> None:
        """Let go of what was held back; without `hold` before, nothing."""
        before = self.before
        if before is None or threading.get_ident() != threading.main_thread().ident:
            return
        noted, self.noted, self.before = self.noted, False, None
        _signal.signal(_NUMBER, before)
        if noted:
            before(_NUMBER, None)


interrupts: Final = Interrupts()
