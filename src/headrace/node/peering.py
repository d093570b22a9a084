"""The link of a broker that is one of several: who the others are, how it proves who it is, and who answers them."""

import ssl
from collections.abc import Sequence

from headrace.broker.coordinators import OFFSETS_TOPIC
from headrace.broker.identity import serves
from headrace.broker.peers.service import PeerService
from headrace.chance import Chance
from headrace.control import keys
from headrace.control.cluster import Cluster
from headrace.control.metastore import Compare, unchanged
from headrace.control.settings import ControlSettings
from headrace.link.link import Link
from headrace.link.party import Party, Peer


def build_link(
    settings: ControlSettings, cluster: Cluster, service: PeerService, *, own: Party, chance: Chance
) -> Link:
    def directory(name: str) -> Peer | None:
        found = cluster.members.get(name)
        if found is None or not serves(found):
            return None
        return Peer(found.broker_epoch, found.host, found.port_peer)

    async def serve(caller: Party, kind: str, body: bytes) -> bytes:
        return await service.answer(kind, body)

    return Link(
        own,
        cluster_id=cluster.cluster_id,
        directory=directory,
        serve=serve,
        chance=chance,
        server_tls=_tls(settings, ssl.Purpose.CLIENT_AUTH),
        client_tls=_tls(settings, ssl.Purpose.SERVER_AUTH),
    )


def leads_offsets(cluster: Cluster, index: int) -> Sequence[Compare] | None:
    """Holds while this incarnation leads that partition of the topic of committed offsets. None where another one is known to."""
    entry = cluster.topics.partition(OFFSETS_TOPIC, index)
    if entry.leader != cluster.fence.broker_id:
        return None
    return cluster.fence.compare(), unchanged(keys.leader(OFFSETS_TOPIC, index), entry.leader_revision)


def _tls(settings: ControlSettings, purpose: ssl.Purpose) -> ssl.SSLContext | None:
    """Mutual, with the cluster's own authority. None without `rpc.tls`: on loopback nobody is asked. Files are read once."""
    if settings.rpc_tls_ca is None or settings.rpc_tls_certificate is None or settings.rpc_tls_key is None:
        return None
    context = ssl.create_default_context(purpose, cafile=settings.rpc_tls_ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(settings.rpc_tls_certificate, settings.rpc_tls_key)
    return context
