"""Data messages: checked, answered if wanted, published, and handed on to the log. In that order.

The reply says whether the frames, the meta frame, app-env and topic are right. It is given before anything is done
with the body, as the protocol demands, and so it promises nothing about storage.
"""

from collections.abc import Sequence
from typing import Final

from headrace.broker.access.words import Operation, Resource
from headrace.doors.logjam.errors import status_of
from headrace.doors.logjam.session import Session
from headrace.doors.rights import Need
from headrace.errors import Denied, InvalidName, Rejected, TopicNotFound
from headrace.wire.logjam.messages import DataMessage, build_reply, parse_data

NEEDS: Final = (
    Need(Operation.WRITE, Resource.TOPIC),
    Need(Operation.CREATE, Resource.TOPIC),
    Need(Operation.READ, Resource.TOPIC),
)
"""To keep a message, to make its stream's topic, and to show it to subscribers."""


def handle_request(frames: Sequence[bytes], session: Session) -> list[bytes]:
    """Gives the reply; the message itself is on its way when this returns."""
    app_env = frames[0] if frames else b""
    try:
        message = _parse(frames, session, allows_three_frames=False)
    except Rejected as error:
        session.metrics.bad_requests_total += 1
        return build_reply(session.reply_form, app_env, status_of(error))
    _accept(message, session, wants_reply=True)
    return build_reply(session.reply_form, app_env, status_of(None))


def handle_message(frames: Sequence[bytes], session: Session, *, is_pushed: bool) -> None:
    try:
        message = _parse(frames, session, allows_three_frames=is_pushed and session.settings.accept_three_frames)
    except Rejected:
        return
    _accept(message, session, wants_reply=False)


def _parse(frames: Sequence[bytes], session: Session, *, allows_three_frames: bool) -> DataMessage:
    try:
        message = parse_data(
            frames,
            is_strict=session.settings.strict_names,
            allows_three_frames=allows_three_frames,
            now_ms=session.clock.now_ms() if allows_three_frames else 0,
        )
        session.access.check_write(message)
        return message
    except (Denied, TopicNotFound):
        session.metrics.denied_total += 1
        raise
    except InvalidName:
        session.metrics.misnamed_total += 1
        raise
    except Rejected:
        session.metrics.malformed_total += 1
        raise


def _accept(message: DataMessage, session: Session, *, wants_reply: bool) -> None:
    session.metrics.accepted_total += 1
    meta = message.meta
    if meta.device_number:
        session.metrics.lost_total += session.gaps.observe(
            meta.device_number, meta.sequence, now_ms=session.clock.monotonic_ms()
        )
    is_shown = session.subscribers.may_read(message)
    if is_shown:
        session.publisher.publish(message)
    body = session.intake.take(message, wants_reply=wants_reply)
    if body is not None and is_shown:
        session.live.add(message, body)
