"""Quotas as the command line uses them: single requests to one node."""

from collections.abc import Mapping
from typing import Final

from headrace.broker.access.quotas import DEFAULT, Entity, Limit
from headrace.cli.administration import ShownQuota
from headrace.cli.kafka_acls import check_code
from headrace.clients.kafka import KafkaRequests
from headrace.wire.kafka.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.wire.kafka.messages.alter_client_quotas_response import AlterClientQuotasResponse
from headrace.wire.kafka.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from headrace.wire.kafka.messages.describe_client_quotas_response import DescribeClientQuotasResponse

_VERSION: Final = 1
EVERYBODY: Final = "*"
_COLUMNS: Final = {
    "produce": Limit.PRODUCE,
    "consume": Limit.FETCH,
    "requests": Limit.REQUESTS,
    "connections": Limit.CONNECTIONS,
}
_KINDS: Final = {"user": "user", "client": "client-id", "ip": "ip"}


class QuotaAdmin:
    def __init__(self, address: str) -> None:
        self._address = address

    def set(self, entity: Entity, limits: Mapping[Limit, float]) -> None:
        self._alter(EntryData(_entity(entity), [OpData(limit.value, value) for limit, value in limits.items()]))

    def remove(self, entity: Entity) -> int:
        wanted = tuple(EVERYBODY if name == DEFAULT else name for name in entity)
        for each in self.list():
            if (each.user, each.client, each.ip) == wanted:
                limits = [limit for column, limit in _COLUMNS.items() if getattr(each, column) is not None]
                self._alter(EntryData(_entity(entity), [OpData(limit.value, 0.0, True) for limit in limits]))
                return len(limits)
        return 0

    def list(self) -> list[ShownQuota]:
        with KafkaRequests(self._address) as node:
            answer = node.call(DescribeClientQuotasRequest(), _VERSION, DescribeClientQuotasResponse)
        check_code(answer.error_code, answer.error_message)
        shown = []
        for entry in answer.entries or ():
            names = {each.entity_type: each.entity_name or EVERYBODY for each in entry.entity}
            limits = {each.key: each.value for each in entry.values}
            shown.append(
                ShownQuota(
                    user=names.get("user"),
                    client=names.get("client-id"),
                    ip=names.get("ip"),
                    **{column: limits.get(limit.value) for column, limit in _COLUMNS.items()},
                )
            )
        return shown

    def _alter(self, entry: EntryData) -> None:
        with KafkaRequests(self._address) as node:
            answer = node.call(AlterClientQuotasRequest(entries=[entry]), _VERSION, AlterClientQuotasResponse)
        for row in answer.entries:
            check_code(row.error_code, row.error_message)


def _entity(entity: Entity) -> list[EntityData]:
    named = ((_KINDS[kind], name) for kind, name in entity._asdict().items() if name is not None)
    return [EntityData(kind, None if name == DEFAULT else name) for kind, name in named]
