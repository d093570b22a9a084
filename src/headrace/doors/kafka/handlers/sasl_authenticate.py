"""SaslAuthenticate, v0-v2: the messages of the mechanism that was agreed on. From v1 the client hears how long its login holds.

Requests behind it wait for the outcome. Whoever is refused hears so after a while, in the same words whatever was wrong, and the connection ends.
"""

import asyncio
from collections.abc import Awaitable

import structlog

from headrace.doors.kafka.login import REFUSED_DELAY_S, Login
from headrace.doors.kafka.session import Session
from headrace.errors import Denied, MalformedRequest
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse

log = structlog.get_logger(__name__)


def handle(request: SaslAuthenticateRequest, version: int, session: Session) -> Message | Awaitable[Message]:
    login = session.login
    if login is None or not login.is_chosen:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received without a SaslHandshake before it",
        )
    login.begin_step()
    return _stepped(request, login, session)


async def _stepped(request: SaslAuthenticateRequest, login: Login, session: Session) -> SaslAuthenticateResponse:
    answer = await prove(request.auth_bytes, login, session)
    if answer is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            error_message="Authentication failed: invalid credentials",
        )
    now_ms = session.broker.clock.now_ms()
    is_over = login.is_done and not login.is_chosen
    lifetime_ms = max(login.expires_ms - now_ms, 0) if is_over and login.expires_ms else 0
    return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)


async def prove(message: bytes, login: Login, session: Session) -> bytes | None:
    """One message of the mechanism and its answer; None, after a while, for whoever is refused: the connection ends then."""
    try:
        answer = await login.step(message, session.broker.clock)
        if login.is_done and not login.is_chosen and session.on_login is not None:
            session.on_login()
    except (Denied, MalformedRequest) as error:
        session.door.refused_logins_total += 1
        log.info("login refused", door="kafka", peer=session.peer, reason=str(error))
        if (audit := session.broker.access.audit) is not None:
            audit.login_refused(session.guard.host, session.listener)
        await asyncio.sleep(REFUSED_DELAY_S)
        if session.on_refused is not None:
            session.on_refused()
        return None
    finally:
        login.end_step()
    return answer
