"""Users, access rules and quotas over the REST API: the ports of `administration`, for who has a token and cannot reach the Kafka door."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from headrace.broker.access.intents import KINDS, operation_of, word_of
from headrace.broker.access.quotas import DEFAULT, Entity, Limit
from headrace.broker.access.rules import Rule
from headrace.broker.access.words import Pattern, Permission, Resource
from headrace.cli.administration import NOBODY_IS_ASKED, ShownQuota, ShownUser, user_exists
from headrace.cli.rest import RestClient
from headrace.errors import AlreadyExists, Rejected, ResourceNotFound

_LIMITS = {
    Limit.PRODUCE: "produce_bytes",
    Limit.FETCH: "fetch_bytes",
    Limit.REQUESTS: "request_percentage",
    Limit.CONNECTIONS: "connections",
}
_EVERYBODY = "*"


class RestUserAdmin:
    def __init__(self, client: RestClient) -> None:
        self._client = client

    def list(self, name: str | None = None) -> list[ShownUser]:
        return [
            ShownUser(user=row["user"], mechanisms=row["mechanisms"], iterations=row["iterations"])
            for page in self._client.pages("users", filter=name or "")
            for row in page["users"]
            if name in (None, row["user"])
        ]

    def create(self, name: str, password: str, *, is_super: bool) -> None:
        try:
            self._client.post("users", body={"user": name, "password": password, "is_super": is_super})
        except AlreadyExists as error:
            raise user_exists(name) from error

    def set_password(self, name: str, password: str) -> None:
        self._client.post("users", name, "password", body={"password": password})

    def delete(self, name: str) -> None:
        self._client.delete("users", name)


class RestAclAdmin:
    def __init__(self, client: RestClient) -> None:
        self._client = client

    def create(self, rules: Iterable[Rule]) -> None:
        for rule in rules:
            self._client.post("acls", body=_words_of(rule))

    def find(
        self, *, principal: str | None = None, kind: Resource | None = None, name: str | None = None
    ) -> list[Rule]:
        asked = {"principal": principal, "kind": None if kind is None else word_of(kind), "name": name}
        given = {field: value for field, value in asked.items() if value is not None}
        rules: list[Rule] = []
        for page in self._client.pages("acls", **given):
            if not page["is_on"]:
                raise Rejected(NOBODY_IS_ASKED)
            rules += map(_rule_of, page["acls"])
        return rules

    def delete(self, rules: Iterable[Rule]) -> int:
        return sum(map(self._delete, rules))

    def _delete(self, rule: Rule) -> bool:
        try:
            self._client.delete("acls", query=urlencode(_words_of(rule)))
        except ResourceNotFound:
            return False
        return True


class RestQuotaAdmin:
    def __init__(self, client: RestClient) -> None:
        self._client = client

    def set(self, entity: Entity, limits: Mapping[Limit, float]) -> None:
        named = {_LIMITS[limit]: value for limit, value in limits.items()}
        self._client.post("quotas", body={**_names_of(entity), **named})

    def remove(self, entity: Entity) -> int:
        try:
            removed = self._client.delete("quotas", query=urlencode(_names_of(entity)))["quota"]
        except ResourceNotFound:
            return 0
        return sum(removed[field] is not None for field in _LIMITS.values())

    def list(self) -> list[ShownQuota]:
        return [
            ShownQuota(
                user=row["user"],
                client=row["client"],
                ip=row["ip"],
                produce=row["produce_bytes"],
                consume=row["fetch_bytes"],
                requests=row["request_percentage"],
                connections=row["connections"],
            )
            for page in self._client.pages("quotas")
            for row in page["quotas"]
        ]


def _words_of(rule: Rule) -> dict[str, str]:
    return {
        "principal": rule.principal,
        "operation": word_of(rule.operation),
        "permission": word_of(rule.permission),
        "kind": word_of(rule.resource),
        "name": rule.name,
        "pattern": word_of(rule.pattern),
        "host": rule.host,
    }


def _rule_of(row: Mapping[str, Any]) -> Rule:  # Any: JSON
    return Rule(
        resource=KINDS[row["kind"]],
        name=row["name"],
        pattern=Pattern[row["pattern"].upper()],
        principal=row["principal"],
        host=row["host"],
        operation=operation_of(row["operation"]),
        permission=Permission[row["permission"].upper()],
    )


def _names_of(entity: Entity) -> dict[str, str]:
    return {
        kind: _EVERYBODY if name == DEFAULT else name for kind, name in entity._asdict().items() if name is not None
    }
