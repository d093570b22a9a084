"""Users as the command line uses them: single requests to one node."""

import os
from typing import Final

from headrace.broker.access.scram import HASHES, ITERATIONS_DEFAULT, salted_password
from headrace.broker.access.service import everything_for
from headrace.broker.access.words import Principal
from headrace.cli.administration import ShownUser, user_exists
from headrace.cli.kafka_acls import AclAdmin, check_code
from headrace.clients.kafka import KafkaRequests
from headrace.errors import NotFound
from headrace.wire.kafka.error_codes import ErrorCode
from headrace.wire.kafka.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.kafka.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from headrace.wire.kafka.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from headrace.wire.kafka.messages.describe_user_scram_credentials_response import (
    DescribeUserScramCredentialsResponse,
)

_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES: Final = {number: name for name, number in _NUMBERS.items()}


class UserAdmin:
    def __init__(self, address: str) -> None:
        self._address = address

    def list(self, name: str | None = None) -> list[ShownUser]:
        request = DescribeUserScramCredentialsRequest(None if name is None else [UserName(name)])
        with KafkaRequests(self._address) as node:
            answer = node.call(request, 0, DescribeUserScramCredentialsResponse)
        check_code(answer.error_code, answer.error_message)
        return [
            ShownUser(
                user=row.user,
                mechanisms=[_NAMES[each.mechanism] for each in row.credential_infos],
                iterations=min(each.iterations for each in row.credential_infos),
            )
            for row in answer.results
            if not row.error_code
        ]

    def create(self, name: str, password: str, *, is_super: bool) -> None:
        if self.list(name):
            raise user_exists(name)
        # The rules first: a user without them would only be confused, rules without a user let nobody in.
        if is_super:
            AclAdmin(self._address).create(everything_for(Principal(name)))
        self.set_password(name, password)

    def set_password(self, name: str, password: str) -> None:
        changes = []
        for mechanism in HASHES:
            salt = os.urandom(24)
            salted = salted_password(mechanism, password, salt, ITERATIONS_DEFAULT)
            changes.append(ScramCredentialUpsertion(name, _NUMBERS[mechanism], ITERATIONS_DEFAULT, salt, salted))
        self._alter(AlterUserScramCredentialsRequest(upsertions=changes))

    def delete(self, name: str) -> None:
        found = self.list(name)
        if not found:
            raise NotFound(f"there is no user {name!r}")
        deletions = [ScramCredentialDeletion(name, _NUMBERS[each]) for each in found[0].mechanisms]
        self._alter(AlterUserScramCredentialsRequest(deletions=deletions))

    def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        with KafkaRequests(self._address) as node:
            answer = node.call(request, 0, AlterUserScramCredentialsResponse)
        for row in answer.results:
            if row.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                raise NotFound(f"there is no user {row.user!r}")
            check_code(row.error_code, row.error_message)
