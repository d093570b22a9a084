"""ApiVersions, v0-v4.

- The list is the route table's; this module cannot import it (the table imports us), so it asks for it when called.
- A version above ours is answered in v0 with error 35 and our own range, so that the client can come back (KIP-511).
"""

from headrace.doors.kafka.session import Session
from headrace.wire.kafka.api_keys import ApiKey
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.api_versions_response import ApiVersion, ApiVersionsResponse


def handle(request: ApiVersionsRequest, version: int, session: Session) -> ApiVersionsResponse:
    from headrace.doors.kafka.routes import advertised_ranges

    return ApiVersionsResponse(
        api_keys=[ApiVersion(row.key, row.first, row.last) for row in advertised_ranges()],
    )


def unsupported() -> ApiVersionsResponse:
    """What a client hears that asks in a version we do not know; encode it as v0."""
    from headrace.doors.kafka.routes import ROUTES

    first, last = ROUTES[ApiKey.API_VERSIONS].versions
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(ApiKey.API_VERSIONS, first, last)]
    )
