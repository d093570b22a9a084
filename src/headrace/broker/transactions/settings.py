"""How transactions behave on this node."""

from typing import Annotated

import msgspec
from msgspec import Meta


class TransactionCoordinatorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Transactional producers."""

    timeout_ms_max: Annotated[int, Meta(ge=1)] = 900_000
    """Longest transaction a producer may ask for. An open one holds back every read_committed reader."""
    id_expiration_ms: Annotated[int, Meta(ge=1)] = 7 * 24 * 3600 * 1000
    """When an unused transactional id is forgotten."""
    topic_partitions: Annotated[int, Meta(ge=1, le=1_000)] = 16
    """Partitions of `__transaction_state`, fixed when it is created. Kafka has 50; one node needs fewer."""
