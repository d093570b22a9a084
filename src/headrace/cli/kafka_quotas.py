"""Quotas as the command line uses them: single requests to one node."""

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.broker.access.quotas import Limit
from headrace.cli.kafka_acls import check_code
from headrace.clients.kafka import KafkaRequests
from headrace.errors import Invalid, NotFound
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
_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
EVERYBODY: Final = "*"


class ShownQuota(msgspec.Struct, frozen=True, kw_only=True):
    user: str | None
    client: str | None
    ip: str | None
    produce: float | None
    consume: float | None
    requests: float | None
    connections: float | None


COLUMNS: Final = {
    "produce": Limit.PRODUCE,
    "consume": Limit.FETCH,
    "requests": Limit.REQUESTS,
    "connections": Limit.CONNECTIONS,
}


def bytes_of(text: str) -> float:
    """`500`, `10k`, `5MB`, `1MiB`: bytes in a second."""
    lower = text.strip().lower().removesuffix("/s").removesuffix("b")
    number = lower.rstrip("kmgi")
    unit = _UNITS.get(lower[len(number) :])
    try:
        if unit is None:
            raise ValueError
        return float(round(float(number) * unit))
    except ValueError as error:
        raise Invalid(f"{text!r} is not an amount of bytes, as 500, 10k or 5MB") from error


def entity_of(user: str | None, client: str | None, ip: str | None) -> list[EntityData]:
    """A star stands for whoever has no quota of their own."""
    named = (("user", user), ("client-id", client), ("ip", ip))
    entity = [EntityData(kind, None if name == EVERYBODY else name) for kind, name in named if name is not None]
    if not entity:
        raise Invalid("whose quota? --user, --client or --ip; * stands for whoever has none of their own")
    return entity


class QuotaAdmin:
    def __init__(self, address: str) -> None:
        self._address = address

    def set(self, entity: list[EntityData], limits: Mapping[Limit, float]) -> None:
        if not limits:
            raise Invalid("which limit? --produce, --consume, --requests or --connections")
        self._alter(EntryData(entity, [OpData(limit.value, value) for limit, value in limits.items()]))

    def remove(self, entity: list[EntityData]) -> int:
        """All limits of somebody; gives how many there were."""
        names = {each.entity_type: each.entity_name or EVERYBODY for each in entity}
        wanted = (names.get("user"), names.get("client-id"), names.get("ip"))
        for each in self.list():
            if (each.user, each.client, each.ip) == wanted:
                limits = [limit for column, limit in COLUMNS.items() if getattr(each, column) is not None]
                self._alter(EntryData(entity, [OpData(limit.value, 0.0, True) for limit in limits]))
                return len(limits)
        raise NotFound("there is no such quota; `headrace quota list` shows those there are")

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
                    **{column: limits.get(limit.value) for column, limit in COLUMNS.items()},
                )
            )
        return shown

    def _alter(self, entry: EntryData) -> None:
        with KafkaRequests(self._address) as node:
            answer = node.call(AlterClientQuotasRequest(entries=[entry]), _VERSION, AlterClientQuotasResponse)
        for row in answer.entries:
            check_code(row.error_code, row.error_message)
