"""The limits of one classic group."""

import msgspec


class ClassicSettings(msgspec.Struct, frozen=True, kw_only=True):
    initial_delay_ms: int = 3000
    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    members_max: int = 10_000
