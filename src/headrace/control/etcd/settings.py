"""Where an etcd is. Apart from the client, which loads gRPC: settings are read by commands that need none."""

import msgspec


class EtcdSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where an etcd is, and how to be let in."""

    endpoints: tuple[str, ...]
    """`host:port` of its members."""
    prefix: str = "headrace"
    """Before every key: an etcd may serve others too. Nothing where it is a controller's, which serves nobody else."""
    ca_file: str = ""
    """Certificates of those who sign its members'. With it, connections are encrypted."""
    cert_file: str = ""
    key_file: str = ""
    """Our own, where etcd asks for one."""
    member: str = "etcd"
    """What messages call a member. Controllers speak etcd's API and are none."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the members, for messages."""
        return tuple(f"{self.member} at {endpoint}" for endpoint in self.endpoints)
