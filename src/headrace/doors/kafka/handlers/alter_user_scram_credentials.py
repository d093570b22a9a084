"""AlterUserScramCredentials, v0. A user is named once in a request; each is changed, or refused, by itself.

Clients send salted passwords, from which anybody could log in: verifiers are made of them, and they are not kept.
"""

from collections import Counter

from headrace.broker.access.scram import ITERATIONS_MAX, ITERATIONS_MIN, verifier_of
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.handlers.describe_user_scram_credentials import MECHANISMS
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError, InvalidName
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.kafka.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(
    request: AlterUserScramCredentialsRequest, version: int, session: Session
) -> AlterUserScramCredentialsResponse:
    changes: list[Change] = [*request.deletions, *request.upsertions]
    pairs = Counter((each.name, each.mechanism) for each in changes)
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for change in changes:
        if change.name in results and results[change.name].error_code:
            continue
        if pairs[(change.name, change.mechanism)] > 1:
            message = "A user credential cannot be altered twice in the same request"
            results[change.name] = _refused(change, ErrorCode.DUPLICATE_RESOURCE, message)
        else:
            results[change.name] = await _apply(change, session)
    return AlterUserScramCredentialsResponse(results=list(results.values()))


async def _apply(change: Change, session: Session) -> AlterUserScramCredentialsResult:
    mechanism = MECHANISMS.get(change.mechanism)
    if not change.name:
        return _refused(change, ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism is None:
        return _refused(change, ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    access = session.broker.access
    verifiers = dict(access.users.verifiers(change.name))
    if isinstance(change, ScramCredentialDeletion):
        if verifiers.pop(mechanism, None) is None:
            message = "Attempt to delete a user credential that does not exist"
            return _refused(change, ErrorCode.RESOURCE_NOT_FOUND, message)
    else:
        if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
            message = f"Iterations must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}"
            return _refused(change, ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
        if not change.salt or not change.salted_password:
            return _refused(change, ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")
        verifiers[mechanism] = verifier_of(mechanism, change.salted_password, change.salt, change.iterations)
    try:
        await access.set_verifiers(change.name, verifiers)
    except InvalidName as error:
        return _refused(change, ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error))
    except HeadraceError as error:
        return _refused(change, code_of(error), str(error))
    return AlterUserScramCredentialsResult(change.name)


def _refused(change: Change, code: ErrorCode, message: str) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(change.name, code, message)
