"""Who this broker is, and how the cluster looks from outside."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

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


@dataclass(slots=True)
class Identity:
    """One node leads every partition for now: the brokers of the cluster are this one."""

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
    configs: Callable[[], Mapping[str, BrokerConfig]] = dict
    """Broker-wide configuration, made when somebody asks for it: the sentences are read from the source."""
