"""Who may come in: settings of the node as a whole. What is asked at each listener is said by the listener."""

from typing import Annotated

import msgspec
from msgspec import Meta


class SecuritySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Access."""

    open: bool = False
    """Let listeners that other machines reach serve anybody. `headrace up --open` sets it, and then listens on all addresses
    unless told otherwise. Restart needed."""
    authorization_enable: bool = False
    """Ask the access rules (`headrace acl`) before anything is done. Without it whoever comes in may do everything. Restart needed."""
    super_users: tuple[str, ...] = ()
    """Principals that no rule binds, as `User:alice`. Restart needed."""
    plain_insecure: bool = False
    """Let clients send passwords (SASL PLAIN) through listeners without TLS. Whoever sees the network then sees them. Restart needed."""
    reauth_max_ms: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    """How long a login holds: clients that know how (KIP-368) log in again in time, others are closed. 0 is for as long as the
    connection. Kafka's brokers know it as `connections.max.reauth.ms`, too. Restart needed."""
    audit_enable: bool = False
    """Keep who was refused what, and who changed what, in the topic `__headrace_audit` (`headrace audit tail`). Restart needed."""
    oauth_jwks_file: str | None = None
    """File with the public keys that tokens of OAUTHBEARER are signed with, as a JSON Web Key Set. Read again when it changes.
    Restart needed to name another."""
    oauth_issuer: str | None = None
    """Who signs tokens: what their `iss` must be. Restart needed."""
    oauth_audience: str | None = None
    """Whom tokens must be for: their `aud`, or one of it. Restart needed."""
    oauth_principal_claim: Annotated[str, Meta(min_length=1)] = "sub"
    """The claim of a token that says who its bearer is: `alice` is `User:alice`. Restart needed."""
    allow_everyone_if_no_acl_found: bool = False
    """Allow what no access rule speaks of at all. Kafka's brokers know it by this name, too. Restart needed."""
