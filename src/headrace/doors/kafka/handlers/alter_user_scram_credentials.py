"""AlterUserScramCredentials, v0. All changes of one user are made together, or refused together; each user by itself.

Clients send salted passwords, from which anybody could log in: verifiers are made of them, and they are not kept.
"""

from collections.abc import Mapping

from headrace.broker.access.scram import ITERATIONS_MAX, ITERATIONS_MIN, Verifier, verifier_of
from headrace.doors.kafka.errors import code_of
from headrace.doors.kafka.handlers.describe_user_scram_credentials import MECHANISMS
from headrace.doors.kafka.session import Session
from headrace.errors import HeadraceError, InvalidName, NotFound
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
    by_user: dict[str, list[Change]] = {}
    for change in changes:
        by_user.setdefault(change.name, []).append(change)
    results = [await _apply(name, changes, session) for name, changes in by_user.items()]
    return AlterUserScramCredentialsResponse(results=results)


async def _apply(name: str, changes: list[Change], session: Session) -> AlterUserScramCredentialsResult:
    for change in changes:
        if (refusal := _check(change)) is not None:
            return refusal
    if len({change.mechanism for change in changes}) < len(changes):
        message = "A user credential cannot be altered twice in the same request"
        return AlterUserScramCredentialsResult(name, ErrorCode.DUPLICATE_RESOURCE, message)
    try:
        await session.broker.access.change_verifiers(name, lambda before: _changed(before, changes), session.guard)
    except NotFound as error:
        return AlterUserScramCredentialsResult(name, ErrorCode.RESOURCE_NOT_FOUND, str(error))
    except InvalidName as error:
        return AlterUserScramCredentialsResult(name, ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error))
    except HeadraceError as error:
        return AlterUserScramCredentialsResult(name, code_of(error), str(error))
    return AlterUserScramCredentialsResult(name)


def _check(change: Change) -> AlterUserScramCredentialsResult | None:
    if not change.name:
        return _refused(change, ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in MECHANISMS:
        return _refused(change, ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        return None
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        message = f"Iterations must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}"
        return _refused(change, ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if not change.salt or not change.salted_password:
        return _refused(change, ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")
    return None


def _changed(before: Mapping[str, Verifier], changes: list[Change]) -> Mapping[str, Verifier]:
    verifiers = dict(before)
    for change in changes:
        mechanism = MECHANISMS[change.mechanism]
        if isinstance(change, ScramCredentialUpsertion):
            verifiers[mechanism] = verifier_of(mechanism, change.salted_password, change.salt, change.iterations)
        elif verifiers.pop(mechanism, None) is None:
            raise NotFound("Attempt to delete a user credential that does not exist")
    return verifiers


def _refused(change: Change, code: ErrorCode, message: str) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(change.name, code, message)
