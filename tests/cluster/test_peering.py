"""What a coordinator's copy of committed offsets is guarded by: that it is still this broker, in this life, that leads them."""

from pathlib import Path

from tests.support.shared_nodes import shared_nodes

from headrace.clock import SystemClock
from headrace.control import keys
from headrace.control.cluster import Cluster
from headrace.control.metastore import Put
from headrace.control.plans import Fence
from headrace.ids import BrokerEpoch
from headrace.node.peering import leads_offsets


async def test_the_guard_holds_for_the_leader_until_it_is_another_or_fenced(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, ("a", "b")) as nodes:
        groups = nodes.members["a"].broker.groups
        leaders = {await groups.leader_of(name): name for name in map(str, range(8))}
        item = await nodes.store.get(keys.broker_identity("a"))
        assert item is not None
        cluster = await Cluster.load(nodes.store, SystemClock())
        cluster.enter(Fence("a", BrokerEpoch(0), item.mod_revision))
        index = groups._log.partition_of(leaders["a"])
        assert leads_offsets(cluster, groups._log.partition_of(leaders["b"])) is None
        guard = leads_offsets(cluster, index)
        assert guard is not None
        write = (Put("/consumer_groups/g/offsets/t/0", b"of a"),)
        assert (await nodes.store.txn(tuple(guard), write)).is_success
        await nodes.move("a", ["b"])
        assert not (await nodes.store.txn(tuple(guard), write)).is_success, "decided by the metastore, heard of or not"
        heard = await Cluster.load(nodes.store, SystemClock())
        heard.enter(cluster.fence)
        assert leads_offsets(heard, index) is None, "and nothing is written in its successor's name"
