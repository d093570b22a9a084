"""Who may come in: settings of the node as a whole. What is asked at each listener is said by the listener."""

import msgspec


class SecuritySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Access."""

    open: bool = False
    """Let listeners that other machines reach serve anybody. `headrace up --open` sets it, and then listens on all addresses
    unless told otherwise. Restart needed."""
