"""`Broker`: the bundle of services that every door is given. It has no methods of its own."""

from dataclasses import dataclass, field

from headrace.broker.access.service import Access
from headrace.broker.access.settings import SecuritySettings
from headrace.broker.fetch import Fetch
from headrace.broker.forwarding import Forwarding
from headrace.broker.groups.service import Groups
from headrace.broker.identity import Identity
from headrace.broker.offsets import Offsets
from headrace.broker.produce import Produce
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.topics import Topics
from headrace.broker.transactions.participation import Participation
from headrace.broker.transactions.service import Transactions
from headrace.chance import SYSTEM_CHANCE, Chance
from headrace.clock import Clock
from headrace.telemetry.metrics import Metrics
from headrace.transforms.service import Transforms


@dataclass(frozen=True, slots=True)
class Broker:
    identity: Identity
    topics: Topics
    produce: Produce
    fetch: Fetch
    producer_ids: ProducerIds
    offsets: Offsets
    groups: Groups
    transactions: Transactions
    participation: Participation
    forwarding: Forwarding
    clock: Clock
    metrics: Metrics
    transforms: Transforms | None = None
    """Wasm modules; None where there is no object store to keep them in."""
    chance: Chance = SYSTEM_CHANCE
    access: Access = field(default_factory=lambda: Access(SecuritySettings()))
