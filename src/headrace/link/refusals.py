"""Errors of one broker as another hears them: by their names in `headrace.errors`."""

from collections.abc import Mapping
from typing import Final

from headrace import errors
from headrace.errors import Elsewhere, Fault, HeadraceError, Unavailable
from headrace.wire.peer.frames import Refusal

_KNOWN: Final[Mapping[str, type[HeadraceError]]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, HeadraceError)
}


def refusal_of(number: int, error: HeadraceError) -> Refusal:
    broker = error.broker if isinstance(error, Elsewhere) else ""
    return Refusal(number, type(error).__name__, str(error), broker)


def error_of(refusal: Refusal) -> HeadraceError:
    """What was raised over there. A fault of that broker is none of this one: here it is a broker that cannot serve just now."""
    kind = _KNOWN.get(refusal.error, Unavailable)
    if issubclass(kind, Elsewhere):
        return kind(refusal.message, broker=refusal.broker)
    return Unavailable(refusal.message) if issubclass(kind, Fault) else kind(refusal.message)
