"""The limits of one KIP-848 group."""

import msgspec


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    heartbeat_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    members_max: int = 10_000
    classic_session_timeout_ms_min: int = 6_000
    """Classic members choose their own session, here as in a classic group."""
    classic_session_timeout_ms_max: int = 1_800_000
