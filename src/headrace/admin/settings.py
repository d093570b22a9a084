"""Settings of the admin door."""

import msgspec


class AdminSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the node answers about itself."""

    listen: str = "0.0.0.0:9642"
    """Address of /health and /metrics. It carries no secrets, but says much: keep it inside."""

    advertised: str | None = None
    """Address that others are told, where it differs from the one listened on."""
