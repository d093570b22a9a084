"""How groups behave on this node. Key names are Kafka's."""

from typing import Annotated

import msgspec
from msgspec import Meta


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Consumer groups and their committed offsets."""

    initial_rebalance_delay_ms: Annotated[int, Meta(ge=0, le=60_000)] = 3_000
    """How long an empty group waits for company before it assigns. Zero starts fast and rebalances more often."""
    session_timeout_ms_min: Annotated[int, Meta(ge=1)] = 6_000
    """Shortest session a classic member may ask for. Shorter ones notice crashes sooner and pauses as crashes."""
    session_timeout_ms_max: Annotated[int, Meta(ge=1)] = 1_800_000
    """Longest session a classic member may ask for."""
    members_max: Annotated[int, Meta(ge=1)] = 10_000
    """Members of one group; a group without a bound is a way to exhaust the node."""
    consumer_heartbeat_interval_ms: Annotated[int, Meta(ge=100)] = 5_000
    """How often members of a KIP-848 group report. Rebalances move at this pace."""
    consumer_session_timeout_ms: Annotated[int, Meta(ge=1_000)] = 45_000
    """When a silent member of a KIP-848 group is given up."""
    consumer_heartbeat_interval_ms_min: Annotated[int, Meta(ge=1)] = 5_000
    """Shortest heartbeat interval that a group's own config may ask for."""
    consumer_heartbeat_interval_ms_max: Annotated[int, Meta(ge=1)] = 15_000
    """Longest heartbeat interval that a group's own config may ask for."""
    consumer_session_timeout_ms_min: Annotated[int, Meta(ge=1)] = 45_000
    """Shortest session that a group's own config may ask for."""
    consumer_session_timeout_ms_max: Annotated[int, Meta(ge=1)] = 60_000
    """Longest session that a group's own config may ask for."""
    offsets_topic_partitions: Annotated[int, Meta(ge=1, le=1_000)] = 16
    """Partitions of `__consumer_offsets`, fixed when it is created. Kafka has 50; one node needs fewer."""
    offsets_retention_minutes: Annotated[int, Meta(ge=1)] = 10_080
    """How long committed offsets outlive the last member of their group."""
    offset_metadata_bytes_max: Annotated[int, Meta(ge=0)] = 4_096
    """Longest note a client may leave with an offset."""
