"""The one line of an error that explains it, out of what Spark wraps around it. Knows nothing of Spark's classes."""

from typing import Final

from headrace.errors import HeadraceError

_OURS: Final = "headrace."
_TRACEBACK: Final = "Traceback (most recent call last):"


def brief(error: BaseException) -> str:
    """Our own error inside Spark's wrapping, or the cause that Python gave there, or the first line there is."""
    text = str(error)
    if isinstance(error, HeadraceError):
        return text
    for line in reversed(text.splitlines()):
        name, separator, rest = line.strip().partition(": ")
        if separator and name.startswith(_OURS) and rest:
            return rest
    return _python_cause(text) or next(
        (line.strip() for line in text.splitlines() if line.strip()), type(error).__name__
    )


def _python_cause(text: str) -> str | None:
    """The line below the last Python traceback: Spark puts that of a worker behind that of the driver."""
    _, separator, below = text.rpartition(_TRACEBACK)
    if not separator:
        return None
    for line in below.splitlines():
        if line.strip() and not line.startswith(" "):
            name, colon, rest = line.strip().partition(": ")
            return f"{name.rpartition('.')[2]}{colon}{rest}"
    return None
