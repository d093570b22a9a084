"""How much somebody may do in a second: limits by user, client id, both, and address, as Kafka knows them.

Of all limits that fit a client the most exact one holds: user and client id, then the user, then the client id, and a default after
what is named. Who shares a limit shares its rate: all clients of a user, unless it is said of the client as well.
"""

import ipaddress
import math
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from headrace.broker.access.rates import WINDOW_S, Rate
from headrace.broker.access.stored import decode_whole
from headrace.control import values
from headrace.control import values_pb2 as pb
from headrace.errors import Invalid

DEFAULT: Final = ""
"""Whoever has no limit of their own. Nobody has an empty name."""
QUOTAS_MAX: Final = 100_000
_RATES_MAX: Final = 10_000
"""Client ids come from the network. Beyond it rates that nobody has moved for ten seconds are forgotten."""
_TOLERANCE: Final = 1e-6


class Limit(Enum):
    """What is limited; values are Kafka's names."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUESTS = "request_percentage"
    """Time of the event loop, of which there is one: 50 is half of it."""
    CONNECTIONS = "connection_creation_rate"


class Entity(NamedTuple):
    """Whose limits they are: None is not named, `DEFAULT` whoever has none of their own."""

    user: str | None = None
    client: str | None = None
    ip: str | None = None


Limits = Mapping[Limit, float]


def check_entity(entity: Entity) -> Entity:
    """With its address as all write it. Raises `Invalid`, in Kafka's words."""
    if entity == Entity():
        raise Invalid("Invalid empty client quota entity")
    if entity.ip is not None and entity != Entity(ip=entity.ip):
        raise Invalid("Invalid quota entity combination, IP entity should not be combined with user or ClientId")
    if not entity.ip:
        return entity
    try:
        return Entity(ip=str(ipaddress.ip_address(entity.ip)))
    except ValueError as error:
        raise Invalid(f"{entity.ip} is not a valid IP or resolvable host.") from error


def check_limit(entity: Entity, limit: Limit, value: float) -> None:
    """Raises `Invalid`, in Kafka's words."""
    if (limit is Limit.CONNECTIONS) is (entity.ip is None):
        raise Invalid(f"Invalid configuration key {limit.value}")
    if not value > 0 or math.isinf(value):
        raise Invalid(f"Quota {limit.value} must be greater than 0")
    if limit is not Limit.REQUESTS and abs(round(value) - value) > _TOLERANCE:
        kind = "Int" if limit is Limit.CONNECTIONS else "Long"
        raise Invalid(f"{limit.value} must be a {kind} value")


class Scope(NamedTuple):
    """Those who share one rate."""

    limit: Limit
    user: str | None
    client: str | None


class Quotas:
    """Changed by what the metastore says, and by nothing else."""

    def __init__(self) -> None:
        self._limits: dict[Entity, Limits] = {}
        self._rates: dict[Scope, Rate] = {}
        self.throttles_total = 0
        self.throttled_ms_total = 0

    def __len__(self) -> int:
        return len(self._limits)

    def __iter__(self) -> Iterator[tuple[Entity, Limits]]:
        return iter(sorted(self._limits.items(), key=lambda each: tuple(name or "" for name in each[0])))

    def limits(self, entity: Entity) -> Limits:
        return self._limits.get(entity, {})

    def apply(self, entity: Entity, value: bytes | None) -> None:
        """Raises `Corrupted` or `NewerFormat` for what this version cannot read: then there is no limit here."""
        self._limits.pop(entity, None)
        if value is not None:
            stored = decode_whole(pb.Quota, value).limits
            self._limits[entity] = {each: stored[each.value] for each in Limit if each.value in stored}

    # -- asking

    def concerns(self, user: str) -> bool:
        """Whether any client of this user may have a limit to what it sends and reads."""
        return any(entity.ip is None and entity.user in (None, user, DEFAULT) for entity in self._limits)

    def limit(self, limit: Limit, user: str, client: str) -> tuple[float, Scope] | None:
        """What holds for this client, and with whom it shares it."""
        for named_user in (user, DEFAULT, None):
            for named_client in (client, DEFAULT, None):
                found = self._limits.get(Entity(named_user, named_client), {}).get(limit)
                if found is not None:
                    scope = Scope(
                        limit,
                        None if named_user is None else user,
                        None if named_client is None else client,
                    )
                    return found, scope
        return None

    def record(self, limit: Limit, user: str, client: str, amount: float, now_ms: int) -> int:
        """Somebody has done so much; for how long they have to stop, in milliseconds."""
        found = self.limit(limit, user, client)
        return 0 if found is None else self._throttled(*found, amount, now_ms)

    def window_bytes(self, user: str, client: str) -> int | None:
        """The most that may be read at once; None where nothing limits it."""
        found = self.limit(Limit.FETCH, user, client)
        return None if found is None else max(int(found[0] * WINDOW_S), 1)

    def connect(self, ip: str, now_ms: int) -> int:
        """Somebody has connected from this address; for how long they have to stay away."""
        for named in (ip, DEFAULT):
            found = self._limits.get(Entity(ip=named), {}).get(Limit.CONNECTIONS)
            if found is not None:
                return self._throttled(found, Scope(Limit.CONNECTIONS, ip, None), 1, now_ms)
        return 0

    def _throttled(self, limit: float, scope: Scope, amount: float, now_ms: int) -> int:
        rate = self._rates.get(scope)
        if rate is None:
            if len(self._rates) >= _RATES_MAX:
                self._rates = {key: each for key, each in self._rates.items() if not each.is_idle(now_ms)}
            rate = self._rates[scope] = Rate()
        rate.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if throttle_ms:
            if scope.limit is Limit.CONNECTIONS:
                # It is closed, and does not count.
                rate.record(-amount, now_ms)
            self.throttles_total += 1
            self.throttled_ms_total += throttle_ms
        return throttle_ms


def encode_limits(limits: Limits) -> bytes:
    return values.encode(pb.Quota(limits={each.value: value for each, value in limits.items()}))
