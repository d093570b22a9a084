"""Log lines of a start, held back while a person waits for something better to look at.

What is held is shown, all of it, when the start fails or takes long: whoever waits wants to know what for. When it succeeds, what is
worth a warning is shown below what the person was waiting for, and the rest is left out: it has come true.
"""

import io
import threading
from typing import Final, TextIO, cast

HELD_S: Final = 10.0
"""A start takes one to five, by how busy the machine is."""


class HeldLines:
    """Between the loggers and `out`. Lines come from several threads, the timer's own among them."""

    def __init__(self, out: TextIO, *, seconds: float = HELD_S) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._held: list[tuple[bool, str]] | None = []
        self.loud: Final = cast(TextIO, _Lines(self, is_loud=True))
        """For warnings and worse."""
        self.quiet: Final = cast(TextIO, _Lines(self, is_loud=False))
        self._timer = threading.Timer(seconds, self.show_all)
        self._timer.daemon = True

    def start(self) -> None:
        """Hold lines for so long at most."""
        self._timer.start()

    def show_all(self) -> None:
        self._show(is_quiet_shown=True)

    def show_loud(self) -> None:
        """Leaves out what is not worth a warning, and holds nothing any more."""
        self._show(is_quiet_shown=False)

    def take(self, text: str, *, is_loud: bool) -> None:
        with self._lock:
            if self._held is not None:
                self._held.append((is_loud, text))
                return
        self._out.write(text)

    def flush(self) -> None:
        self._out.flush()

    def isatty(self) -> bool:
        return self._out.isatty()

    def _show(self, *, is_quiet_shown: bool) -> None:
        self._timer.cancel()
        with self._lock:
            held, self._held = self._held or [], None
            for is_loud, text in held:
                if is_loud or is_quiet_shown:
                    self._out.write(text)
        self._out.flush()


class _Lines(io.TextIOBase):
    def __init__(self, lines: HeldLines, *, is_loud: bool) -> None:
        self._lines = lines
        self._is_loud = is_loud

    def write(self, text: str) -> int:
        self._lines.take(text, is_loud=self._is_loud)
        return len(text)

    def flush(self) -> None:
        self._lines.flush()

    def isatty(self) -> bool:
        return self._lines.isatty()
