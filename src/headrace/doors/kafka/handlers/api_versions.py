"""ApiVersions, v0-v4.

- Features say what versions alone do not: with `transaction.version` 2 clients raise their epoch with each transaction
  (KIP-890), with `group.version` 1 they may join groups of KIP-848.
- A name or version of the client's software that is no word is refused (KIP-511).
- The list is the route table's; this module cannot import it (the table imports us), so it asks for it when called.
- A version above ours is answered in v0 with error 35 and our own range, so that the client can come back (KIP-511).
"""

import re
from typing import Final

from headrace.doors.kafka.session import Session
from headrace.wire.kafka.api_keys import ApiKey
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.kafka.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_FEATURES: Final = {"group.version": 1, "transaction.version": 2}
_FEATURES_FROM: Final = 3
_WORD: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(request: ApiVersionsRequest, version: int, session: Session) -> ApiVersionsResponse:
    from headrace.doors.kafka.routes import advertised_ranges

    words = (request.client_software_name, request.client_software_version)
    if version >= _FEATURES_FROM and not all(_WORD.fullmatch(word) for word in words):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=[ApiVersion(row.key, row.first, row.last) for row in advertised_ranges()],
        # Clients that ask in v3 take a range from 0 on for a broken answer.
        supported_features=[SupportedFeatureKey(name, 0, level) for name, level in _FEATURES.items()]
        if version > _FEATURES_FROM
        else [],
        finalized_features_epoch=0 if version >= _FEATURES_FROM else -1,
        finalized_features=[FinalizedFeatureKey(name, level, level) for name, level in _FEATURES.items()],
    )


def unsupported() -> ApiVersionsResponse:
    """What a client hears that asks in a version we do not know; encode it as v0."""
    from headrace.doors.kafka.routes import ROUTES

    first, last = ROUTES[ApiKey.API_VERSIONS].versions
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(ApiKey.API_VERSIONS, first, last)]
    )
