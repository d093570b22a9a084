"""Who this broker is, and how the cluster looks from outside."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.ids import BrokerEpoch, BrokerId


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
    settings: Mapping[str, str] = field(default_factory=dict)
    """Broker-wide configuration as DescribeConfigs shows it."""
