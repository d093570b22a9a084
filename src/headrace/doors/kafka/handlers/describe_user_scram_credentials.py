"""DescribeUserScramCredentials, v0: which users there are, and how their passwords are kept. Nothing of the passwords."""

from collections import Counter
from typing import Final

from headrace.doors.kafka.session import Session
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from headrace.wire.kafka.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}


def handle(
    request: DescribeUserScramCredentialsRequest, version: int, session: Session
) -> DescribeUserScramCredentialsResponse:
    users = session.broker.access.users
    asked = Counter(user.name for user in request.users) if request.users else Counter(users.names())
    return DescribeUserScramCredentialsResponse(
        results=[_describe(name, session, is_twice=count > 1) for name, count in asked.items()]
    )


def _describe(name: str, session: Session, *, is_twice: bool) -> DescribeUserScramCredentialsResult:
    if is_twice:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, message)
    verifiers = session.broker.access.users.verifiers(name)
    if not verifiers:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return DescribeUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, message)
    return DescribeUserScramCredentialsResult(
        name,
        credential_infos=[
            CredentialInfo(_NUMBERS[mechanism], each.iterations) for mechanism, each in sorted(verifiers.items())
        ],
    )
