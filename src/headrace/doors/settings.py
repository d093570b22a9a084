"""What a listener of any door is told. Its name is part of the key: `listener.NAME.listen`."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
DoorName = Literal["kafka", "quic", "rustlog", "mlog", "logjam", "admin"]


class ListenerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One listener of a door. Each door has one under its own name, whose address `listen.DOOR` says; more of them, for the
    doors of Kafka, RustLog and mlog, need a `door` and an address."""

    name: str
    door: DoorName
    """Whose protocol it speaks. Said for listeners that do not have the name of a door. Restart needed."""
    listen: str
    """Address it listens on; port 0 takes any free one. Restart needed."""
    advertised: str | None = None
    """Address its clients are told to come back to, as HOST:PORT. The listener's own when absent. Restart needed."""
    tls_certificate: str | None = None
    """File with the certificate, and those between it and its authority, in PEM; with it the listener speaks TLS (1.2 or newer). Read
    again when it changes. QUIC always speaks TLS, without this with a certificate of its own making. Restart needed to switch TLS on."""
    tls_key: str | None = None
    """File with the certificate's private key, in PEM."""
    tls_client_ca: str | None = None
    """File with the authorities that clients' certificates are from, in PEM."""
    tls_client_auth: Literal["none", "requested", "required"] = "none"
    """Whether clients show a certificate: its subject is who they are. Restart needed."""
    tls_principal_rules: tuple[str, ...] = ()
    """How the subject of a certificate becomes a name, as Kafka's `ssl.principal.mapping.rules`: the first that fits of
    `RULE:pattern/replacement/[LU]` and `DEFAULT`. Without any it is the whole subject, as `CN=alice,O=mill`. Restart needed."""
    curve_key: str | None = None
    """File with the secret key of Logjam's sockets (ZeroMQ's CURVE, Z85): with it they speak nothing else. Restart needed."""
    curve_clients: str | None = None
    """File with a line for each client of those sockets: its public key, and who it is, as `User:agents`. Read again when it changes."""
    sasl: tuple[Mechanism, ...] = ()
    """How clients of the Kafka and QUIC doors prove who they are: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. None: nobody is asked. Restart needed."""
    login: bool | None = None
    """Whether nobody is served at the admin listener, for REST, gRPC and the console, without a password, a token or a certificate.
    When absent, that is so while `security.authorization.enable` is on and the listener has no `principal`. Restart needed."""
    principal: Annotated[str, Meta(pattern="^User:.+$")] | None = None
    """Who everybody is that comes through it, as `User:agents`, for protocols without a login. ANONYMOUS when absent.
    Restart needed."""
    open: bool = False
    """Let this listener serve anybody, though other machines reach it. Restart needed."""
