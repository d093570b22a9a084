"""SaslHandshake, v0-v1: the client names how it will prove who it is. A second one begins a new login (KIP-368).

After v0 the messages of the login come bare, each behind its size, until it is over; after v1 in SaslAuthenticate. Whoever has logged in
once cannot go back to bare messages.
"""

from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.kafka.messages.sasl_handshake_response import SaslHandshakeResponse


def handle(request: SaslHandshakeRequest, version: int, session: Session) -> SaslHandshakeResponse:
    login = session.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if version == 0 and login.is_done:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    mechanisms = list(login.mechanisms)
    if not login.choose(request.mechanism):
        if session.on_refused is not None:
            session.on_refused()
        return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms)
    login.is_bare = version == 0
    return SaslHandshakeResponse(mechanisms=mechanisms)
