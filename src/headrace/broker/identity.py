"""Who this broker is, and how the cluster looks from outside."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from headrace.control import values_pb2 as pb
from headrace.control.values_pb2 import BrokerRegistration as BrokerRegistration
from headrace.ids import BrokerEpoch, BrokerId


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One broker-wide config as administrators see it."""

    name: str
    value: str | None
    """None: nothing is set, or it is a secret."""
    default: str | None
    kind: str
    """As `ConfigKey.kind`, and `password`."""
    doc: str = ""


NOBODY: Final = -1
_SERVING: Final = (pb.ACTIVE, pb.DRAINING)


def serves(registration: pb.BrokerRegistration) -> bool:
    """Whether clients are sent to this broker."""
    return registration.state in _SERVING


def state_of(registration: pb.BrokerRegistration) -> str:
    """How controllers see the broker, in one word."""
    return pb.BrokerState.Name(registration.state).lower()


class Member(NamedTuple):
    """A broker that clients can go to."""

    number: int
    host: str
    port: int
    rack: str | None


@dataclass(slots=True)
class Identity:
    """This broker among the brokers of the cluster; alone unless `registered` names others."""

    cluster_id: str
    broker_id: BrokerId
    broker_name: str
    broker_epoch: BrokerEpoch
    rack: str | None = None
    data_dir: str = ""
    bucket: str = ""
    """Address of the object store."""
    addresses: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Advertised host and port of each listener, by door; filled as the doors start."""
    registered: Callable[[], Mapping[str, pb.BrokerRegistration]] = dict
    """All brokers of the cluster by name, as the metastore has them."""
    is_gone: Callable[[str], bool] = lambda name: False
    """Whether a broker's process has just ended, though it is still registered (`Neighbours`)."""
    left: Callable[[], dict[str, pb.BrokerRegistration]] = dict
    """Those that served a few seconds ago and are likely to come back (`Neighbours`): clients are not to forget them yet."""
    configs: Callable[[], Mapping[str, BrokerConfig]] = dict
    """Broker-wide configuration, made when somebody asks for it: the sentences are read from the source."""

    def members(self, listener: str, own: tuple[str, int]) -> list[Member]:
        """The brokers and where clients of this listener reach them; this one is where this client was told, `own`."""
        found = [Member(self.broker_id, *own, self.rack)]
        listed = self.left() | {name: each for name, each in self.registered().items() if serves(each)}
        for name, each in listed.items():
            host, _, port = each.advertised.get(listener, "").rpartition(":")
            if name != self.broker_name and host:
                found.append(Member(each.numeric_id, host, int(port), each.rack_id or None))
        return sorted(found)

    def address_of(self, name: str, listener: str) -> str:
        """`host:port` of a broker's listener as clients are told it; empty where none is known."""
        if name == self.broker_name:
            host, port = self.addresses.get(listener, ("", 0))
            return f"{host}:{port}" if host else ""
        found = self.registered().get(name)
        return "" if found is None else found.advertised.get(listener, "")

    def number_of(self, name: str) -> int:
        """The number of the broker of that name, or `NOBODY` while it serves nobody."""
        registered = self.registered()
        if name == self.broker_name or not registered:
            return self.broker_id
        found = registered.get(name)
        is_there = found is not None and serves(found) and not self.is_gone(name)
        return found.numeric_id if found is not None and is_there else NOBODY
