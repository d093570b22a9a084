"""The one line of an error that explains it, out of what Spark wraps around it. Knows nothing of Spark's classes."""

from typing import Final

from headrace.errors import HeadraceError

_OURS: Final = "headrace."


def brief(error: BaseException) -> str:
    """Our own error inside Spark's wrapping, or the first line there is."""
    text = str(error)
    if isinstance(error, HeadraceError):
        return text
    for line in reversed(text.splitlines()):
        name, separator, rest = line.strip().partition(": ")
        if separator and name.startswith(_OURS) and rest:
            return rest
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
