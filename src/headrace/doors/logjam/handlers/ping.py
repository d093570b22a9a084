"""Ping: who is there? Answered with this machine's name, or 400 when its meta frame is bad."""

from collections.abc import Sequence
from typing import Final

from headrace.doors.logjam.errors import status_of
from headrace.doors.logjam.session import Session
from headrace.doors.rights import Need
from headrace.errors import Rejected
from headrace.wire.logjam.messages import PING, build_pong, parse_ping

NEEDS: Final[tuple[Need, ...]] = ()


def handle(frames: Sequence[bytes], session: Session) -> list[bytes]:
    try:
        parse_ping(frames)
    except Rejected as error:
        session.metrics.bad_requests_total += 1
        return [PING, status_of(error)]
    session.metrics.pings_total += 1
    return build_pong(session.host)
