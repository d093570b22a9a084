"""Settings of controllers, and of how nodes reach each other."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headrace.control.etcd.settings import EtcdSettings


class ControlSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a cluster of several processes. `headrace up` alone uses none of them."""

    node_id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """A controller's name, unique among them. `headrace controller` requires it."""

    controller_endpoints: tuple[str, ...] = ("localhost:9093",)
    """`host:port` of every controller. Brokers register there, and read and write metadata through them."""

    listen_rpc: str = "0.0.0.0:9093"
    """Where a controller serves brokers. Other machines are let in only with `rpc.tls`."""

    advertised_rpc: str | None = None
    """The address under which brokers know this controller, one of their `controller.endpoints`, where it is not the one listened on."""

    listen_peer: str = "0.0.0.0:9098"
    """Where a broker of several is called by the others. They find it there by the host that its Kafka clients are told. Other machines are let in only with `rpc.tls`. `headrace up` alone opens no such port."""

    listen_http: str = "0.0.0.0:9642"
    """Where a controller answers /health, /ready and /metrics. A broker does so at `listen.admin`."""

    metastore_type: Literal["sqlite", "etcd"] = "etcd"
    """Where a controller keeps metadata: in an etcd, with any number of controllers, or in a file of its own, with one: that survives a crash and not the loss of its disk."""

    metastore_endpoints: tuple[str, ...] = ("localhost:2379",)
    """`host:port` of the etcd's members."""

    metastore_prefix: Annotated[str, Meta(max_length=128)] = "headrace"
    """Before every key in the etcd: two clusters can share one."""

    metastore_tls_ca: str | None = None
    """File with the certificates of those who sign the etcd's. With it, connections to the etcd are encrypted."""

    metastore_tls_certificate: str | None = None
    """File with our own certificate, where the etcd asks for one."""

    metastore_tls_key: str | None = None
    """File with the key of that certificate."""

    rpc_tls_ca: str | None = None
    """File with the certificate of the cluster's own authority. Nodes prove to each other that it has signed theirs; `headrace cluster init` writes all three."""

    rpc_tls_certificate: str | None = None
    """File with this node's certificate, for serving as well as for calling."""

    rpc_tls_key: str | None = None
    """File with the key of that certificate."""

    @property
    def has_rpc_tls(self) -> bool:
        return self.rpc_tls_ca is not None

    def as_etcd(self) -> EtcdSettings:
        """The etcd that controllers keep metadata in."""
        return EtcdSettings(
            endpoints=self.metastore_endpoints,
            prefix=self.metastore_prefix,
            ca_file=self.metastore_tls_ca or "",
            cert_file=self.metastore_tls_certificate or "",
            key_file=self.metastore_tls_key or "",
        )

    def as_controllers(self) -> EtcdSettings:
        """The controllers, as a broker reaches them."""
        return EtcdSettings(
            endpoints=self.controller_endpoints,
            prefix="",
            ca_file=self.rpc_tls_ca or "",
            cert_file=self.rpc_tls_certificate or "",
            key_file=self.rpc_tls_key or "",
            member="controller",
        )
