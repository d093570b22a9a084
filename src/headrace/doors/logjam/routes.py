"""Which handler a message is for: the first frames say it, there is no type field."""

from collections.abc import Sequence

from headrace.doors.logjam.handlers import data, ping
from headrace.doors.logjam.session import Session
from headrace.wire.logjam.messages import open_envelope


def route_routed(frames: Sequence[bytes], session: Session) -> list[bytes] | None:
    """A message from a DEALER, without its identity; gives the reply if it wants one."""
    envelope = open_envelope(frames)
    if envelope.is_ping:
        return ping.handle(envelope.frames, session)
    if envelope.wants_reply:
        return data.handle_request(envelope.frames, session)
    data.handle_message(envelope.frames, session, is_pushed=False)
    return None


def route_pushed(frames: Sequence[bytes], session: Session) -> None:
    """A message from a PUSHer, who cannot be answered."""
    data.handle_message(frames, session, is_pushed=True)
