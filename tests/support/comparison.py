"""One script of requests for any Kafka broker, and its answers in a form that can be compared field by field.

Left out are fields that must differ: throttle times, ids and times that brokers make up, host names, epochs that count
restarts or start at another number, and error messages, whose words are each broker's own. Generated member ids become
`member-1`, `member-2`. Rows come in any order and are sorted.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from tests.support.raw_kafka import RawKafka, produce_request

from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.wire.coordination.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from headrace.wire.coordination.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.coordination.versioned import encode_versioned
from headrace.wire.kafka.message import Message
from headrace.wire.kafka.messages import (
    add_offsets_to_txn_request,
    add_offsets_to_txn_response,
    add_partitions_to_txn_request,
    add_partitions_to_txn_response,
    alter_client_quotas_request,
    alter_client_quotas_response,
    alter_configs_request,
    alter_configs_response,
    consumer_group_describe_request,
    consumer_group_describe_response,
    consumer_group_heartbeat_request,
    consumer_group_heartbeat_response,
    create_partitions_request,
    create_partitions_response,
    create_topics_request,
    create_topics_response,
    delete_groups_request,
    delete_groups_response,
    delete_records_request,
    delete_records_response,
    delete_topics_request,
    delete_topics_response,
    describe_client_quotas_request,
    describe_client_quotas_response,
    describe_configs_request,
    describe_configs_response,
    describe_groups_request,
    describe_groups_response,
    describe_producers_request,
    describe_producers_response,
    describe_transactions_request,
    describe_transactions_response,
    elect_leaders_request,
    elect_leaders_response,
    end_txn_request,
    end_txn_response,
    fetch_request,
    fetch_response,
    heartbeat_request,
    heartbeat_response,
    incremental_alter_configs_request,
    incremental_alter_configs_response,
    init_producer_id_request,
    init_producer_id_response,
    join_group_request,
    join_group_response,
    leave_group_request,
    leave_group_response,
    list_groups_request,
    list_groups_response,
    list_offsets_request,
    list_offsets_response,
    list_transactions_request,
    list_transactions_response,
    offset_commit_request,
    offset_commit_response,
    offset_delete_request,
    offset_delete_response,
    offset_fetch_request,
    offset_fetch_response,
    sync_group_request,
    sync_group_response,
    txn_offset_commit_request,
    txn_offset_commit_response,
)

IGNORED = {
    "throttle_time_ms",
    "error_message",
    "topic_id",
    "timestamp",
    "last_timestamp",
    "transaction_start_time_ms",
    "host",
    "port",
    "producer_id",
    "cluster_id",
    "leader_epoch",
    "committed_leader_epoch",
    "log_append_time_ms",
    "session_id",
    "documentation",
    "authorized_operations",
    "records",
    "error_records",
    "record_errors",
    "member_epoch",
    "group_epoch",
    "assignment_epoch",
}
MEMBER_FIELDS = {"member_id", "leader"}
NAMING_FIELDS = {
    "name",
    "topic",
    "topic_name",
    "resource_name",
    "group_id",
    "transactional_id",
    "partition_index",
    "partition",
    "partition_id",
    "member_id",
    "source",
    "entity",
    "entity_type",
    "key",
}


class Script:
    """Runs requests against one broker and keeps its answers."""

    def __init__(self, client: RawKafka) -> None:
        self.client = client
        self.answers: list[tuple[str, Any]] = []  # Any: plain values of any depth
        self._members: dict[str, str] = {}

    def call(self, what: str, request: Message, version: int, kind: type[Message], *, keep: bool = True) -> Any:
        answer = self.client.call(request, version, kind)
        if keep:
            self.answers.append((f"{what} v{version}", self.plain(answer)))
        return answer

    def plain(self, value: Any, name: str = "") -> Any:
        if isinstance(value, msgspec.Struct):
            fields = {key: getattr(value, key) for key in value.__struct_fields__ if key not in IGNORED}
            return {key: self.plain(each, key) for key, each in fields.items()}
        if isinstance(value, list):
            return sorted((self.plain(each, name) for each in value), key=_order)
        if isinstance(value, bytes | memoryview):
            return bytes(value).hex()
        if name in MEMBER_FIELDS and isinstance(value, str) and len(value) > 20:
            return self._members.setdefault(value, f"member-{len(self._members) + 1}")
        return value


def _order(value: Any) -> str:
    """By what names a row, where it has a name; errors must not decide."""
    if isinstance(value, dict):
        named = {key: each for key, each in value.items() if key in NAMING_FIELDS}
        return repr(sorted(named.items()))
    return repr(value)


def run_script(bootstrap: str) -> list[tuple[str, Any]]:
    with RawKafka(bootstrap, timeout=30) as client:
        script = Script(client)
        for part in (topics, configs, offsets, classic_group, next_generation_group, transactions, quotas, endings):
            part(script)
    return script.answers


def differences(ours: list[tuple[str, Any]], theirs: list[tuple[str, Any]]) -> Iterator[str]:
    for (what, our), (also, their) in zip(ours, theirs, strict=True):
        assert what == also
        yield from _different(what, our, their)


def _different(where: str, our: Any, their: Any) -> Iterator[str]:
    if isinstance(our, dict) and isinstance(their, dict):
        for key in our.keys() | their.keys():
            yield from _different(f"{where}.{key}", our.get(key), their.get(key))
    elif isinstance(our, list) and isinstance(their, list) and len(our) == len(their):
        for index, (one, other) in enumerate(zip(our, their, strict=True)):
            yield from _different(f"{where}[{index}]", one, other)
    elif our != their:
        yield f"{where}: ours {our!r}, Kafka's {their!r}"


def eventually_zero(call: Callable[[], int], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while (code := call()) != 0:
        assert time.monotonic() < deadline, f"still error {code}"
        time.sleep(0.1)


def batch(values: list[bytes], **producer: Any) -> bytearray:
    return build_batch([NewRecord(value=value) for value in values], now_ms=time.time_ns() // 1_000_000, **producer)


# -- the script


def topics(script: Script) -> None:
    request: Message
    m = create_topics_request

    def create(what: str, *rows: m.CreatableTopic, is_dry: bool = False) -> None:
        request = m.CreateTopicsRequest(list(rows), 10_000, is_dry)
        script.call(what, request, 4, create_topics_response.CreateTopicsResponse)

    create("create", m.CreatableTopic("t", 2, 1, [], []))
    create("create again", m.CreatableTopic("t", 2, 1, [], []))
    create("create badly", m.CreatableTopic("bad name", 1, 1, [], []))
    create("create with none", m.CreatableTopic("none", 0, 1, [], []))
    create("create with many copies", m.CreatableTopic("copies", 1, 9, [], []))
    create("create with a wrong config", m.CreatableTopic("c", 1, 1, [], [m.CreatableTopicConfig("no.such", "1")]))
    create("create for show", m.CreatableTopic("dry", 1, 1, [], []), is_dry=True)
    create("create the controllers' topic", m.CreatableTopic("__cluster_metadata", 1, 1, [], []))
    create("create an internal topic for show", m.CreatableTopic("__consumer_offsets", 3, 1, [], []), is_dry=True)
    p = create_partitions_request
    kind = create_partitions_response.CreatePartitionsResponse
    for what, name, count in [("fewer", "t", 1), ("as many", "t", 2), ("more", "t", 3), ("nowhere", "nowhere", 3)]:
        request = p.CreatePartitionsRequest([p.CreatePartitionsTopic(name, count, None)], 10_000, False)
        script.call(f"partitions, {what}", request, 1, kind)

    def ready() -> int:
        answer = script.client.call(produce_request("t", 2, batch([b"warm"])), 9, _produce_response())
        return int(answer.responses[0].partition_responses[0].error_code)

    eventually_zero(ready)
    for index in range(2):
        request = produce_request("t", index, batch([b"a", b"b", b"c"]))
        script.call(f"produce to {index}", request, 9, _produce_response())
    script.call("produce nowhere", produce_request("t", 77, batch([b"x"])), 9, _produce_response())


def _produce_response() -> type[Any]:
    from headrace.wire.kafka.messages.produce_response import ProduceResponse

    return ProduceResponse


def quotas(script: Script) -> None:
    a, d = alter_client_quotas_request, describe_client_quotas_request

    def alter(what: str, entity: dict[str, str | None], *ops: tuple[str, float, bool], is_dry: bool = False) -> None:
        named = [a.EntityData(kind, name) for kind, name in entity.items()]
        request = a.AlterClientQuotasRequest([a.EntryData(named, [a.OpData(*op) for op in ops])], is_dry)
        script.call(f"quota, {what}", request, 1, alter_client_quotas_response.AlterClientQuotasResponse)

    def describe(what: str, *wanted: tuple[str, int, str | None], strict: bool = False) -> None:
        request = d.DescribeClientQuotasRequest([d.ComponentData(*each) for each in wanted], strict)
        script.call(f"quotas, {what}", request, 1, describe_client_quotas_response.DescribeClientQuotasResponse)

    megabyte = 1_000_000.0
    alter("of a user", {"user": "alice"}, ("producer_byte_rate", megabyte, False), ("request_percentage", 12.5, False))
    alter("of another client", {"client-id": "app"}, ("consumer_byte_rate", megabyte, False))
    alter("of both", {"user": "alice", "client-id": "app"}, ("producer_byte_rate", megabyte, False))
    alter("of everybody", {"user": None}, ("consumer_byte_rate", 2 * megabyte, False))
    alter("of an address", {"ip": "10.1.2.3"}, ("connection_creation_rate", 50.0, False))
    alter("for show", {"user": "dry"}, ("producer_byte_rate", megabyte, False), is_dry=True)
    alter("removed where there is none", {"user": "nobody"}, ("producer_byte_rate", 0.0, True))
    alter("of nobody", {}, ("producer_byte_rate", megabyte, False))
    alter("of an empty name", {"user": ""}, ("producer_byte_rate", megabyte, False))
    alter("of an unknown kind", {"planet": "mars"}, ("producer_byte_rate", megabyte, False))
    alter("of an address and a user", {"ip": "10.1.2.3", "user": "a"}, ("connection_creation_rate", 5.0, False))
    alter("of no address", {"ip": "not an address"}, ("connection_creation_rate", 5.0, False))
    alter("an unknown limit", {"user": "alice"}, ("no_such_rate", 1.0, False))
    alter("a limit of addresses", {"user": "alice"}, ("connection_creation_rate", 5.0, False))
    alter("half a byte", {"user": "alice"}, ("producer_byte_rate", 1.5, False))
    alter("nothing at all", {"user": "alice"}, ("producer_byte_rate", 0.0, False))
    time.sleep(0.5)
    describe("all")
    describe("of alice", ("user", 0, "alice"))
    describe("of alice alone", ("user", 0, "alice"), strict=True)
    describe("of everybody", ("user", 1, None))
    describe("of any client", ("client-id", 2, None))
    describe("of addresses", ("ip", 2, None))
    describe("twice", ("user", 2, None), ("user", 2, None))
    describe("of addresses and users", ("ip", 2, None), ("user", 2, None))
    describe("of an unknown kind", ("planet", 2, None))
    describe("without the name", ("user", 0, None))
    describe("with a name too many", ("user", 1, "alice"))
    alter("removed", {"user": "alice"}, ("producer_byte_rate", 0.0, True), ("request_percentage", 0.0, True))
    time.sleep(0.5)
    describe("all but that", ("user", 2, None))


def configs(script: Script) -> None:
    d, kind = describe_configs_request, describe_configs_response.DescribeConfigsResponse
    keys = ["cleanup.policy", "retention.ms", "max.message.bytes", "compression.type", "message.timestamp.type"]

    def describe(what: str, *, resource: int = 2, name: str = "t") -> None:
        request = d.DescribeConfigsRequest([d.DescribeConfigsResource(resource, name, sorted(keys))], True, False)
        script.call(what, request, 4, kind)

    def change(what: str, *changes: tuple[str, int, str | None], name: str = "t") -> None:
        i = incremental_alter_configs_request
        rows = [i.AlterableConfig(*change) for change in changes]
        request = i.IncrementalAlterConfigsRequest([i.AlterConfigsResource(2, name, rows)], False)
        script.call(what, request, 1, incremental_alter_configs_response.IncrementalAlterConfigsResponse)
        time.sleep(0.5)

    describe("describe")
    describe("describe nowhere", name="nowhere")
    change("set", ("retention.ms", 0, "1000000"), ("max.message.bytes", 0, "2000000"))
    describe("describe what was set")
    change("set wrongly", ("retention.ms", 0, "soon"))
    change("set what is not there", ("no.such", 0, "1"))
    change("append to a list", ("cleanup.policy", 2, "compact"))
    change("append to a number", ("retention.ms", 2, "1"))
    change("nowhere", ("retention.ms", 0, "1"), name="nowhere")
    describe("describe the list")
    a = alter_configs_request
    request = a.AlterConfigsRequest(
        [a.AlterConfigsResource(2, "t", [a.AlterableConfig("retention.ms", "5000000")])], False
    )
    script.call("replace", request, 1, alter_configs_response.AlterConfigsResponse)
    time.sleep(0.5)
    describe("describe what is left")
    e = elect_leaders_request
    wanted = [e.TopicPartitions("t", [0]), e.TopicPartitions("nowhere", [0])]
    script.call("elect", e.ElectLeadersRequest(0, wanted, 5000), 1, elect_leaders_response.ElectLeadersResponse)


def offsets(script: Script) -> None:
    request: Message
    wanted: Any  # Any: rows of whichever request comes next
    n, kind = list_offsets_request, list_offsets_response.ListOffsetsResponse
    for what, stamp in [("latest", -1), ("earliest", -2), ("max timestamp", -3), ("of a time", 1), ("too late", 2**62)]:
        rows = [n.ListOffsetsTopic("t", [n.ListOffsetsPartition(0, -1, stamp)])]
        script.call(f"offset {what}", n.ListOffsetsRequest(-1, 0, rows), 7, kind)
    rows = [
        n.ListOffsetsTopic("t", [n.ListOffsetsPartition(9, -1, -1)]),
        n.ListOffsetsTopic("no", [n.ListOffsetsPartition(0, -1, -1)]),
    ]
    script.call("offsets nowhere", n.ListOffsetsRequest(-1, 0, rows), 7, kind)
    x = delete_records_request
    for what, index, offset in [("one", 0, 1), ("too many", 0, 99), ("nowhere", 9, 1), ("all", 1, -1)]:
        wanted = [x.DeleteRecordsTopic("t", [x.DeleteRecordsPartition(index, offset)])]
        request = x.DeleteRecordsRequest(wanted, 10_000)
        script.call(f"delete {what}", request, 2, delete_records_response.DeleteRecordsResponse)
    find_coordinator(script)
    eventually_zero(lambda: _warm(script))
    for version in (2, 7, 9):
        commit(script, f"simple commit {version}", "simple", {"t": [0, 9], "no": [0]}, version=version)
    for version in (1, 5, 7):
        f = offset_fetch_request
        wanted = [f.OffsetFetchRequestTopic("t", [0, 1])]
        request = f.OffsetFetchRequest(group_id="simple", topics=wanted)
        script.call("fetch offsets", request, version, offset_fetch_response.OffsetFetchResponse)
    f = offset_fetch_request
    request = f.OffsetFetchRequest(
        groups=[f.OffsetFetchRequestGroup("simple", topics=None), f.OffsetFetchRequestGroup("nobody", topics=None)]
    )
    script.call("fetch all offsets", request, 8, offset_fetch_response.OffsetFetchResponse)
    commit(script, "commit of a stranger", "stranger", {"t": [0]}, member_id="m", generation=3)


def find_coordinator(script: Script) -> None:
    from headrace.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
    from headrace.wire.kafka.messages.find_coordinator_response import FindCoordinatorResponse

    for kind, name in [(0, "simple"), (1, "x")]:
        request = FindCoordinatorRequest(key=name, key_type=kind)
        eventually_zero(lambda request=request: script.client.call(request, 2, FindCoordinatorResponse).error_code)  # type: ignore[misc]


def _warm(script: Script) -> int:
    """A coordinator that has just been made may still be loading."""
    quiet = Script(script.client)
    commit(quiet, "warm", "warm", {"t": [0]})
    return int(quiet.answers[0][1]["topics"][0]["partitions"][0]["error_code"])


def commit(
    script: Script, what: str, group: str, places: dict[str, list[int]], *, version: int = 7, **who: Any
) -> None:
    c = offset_commit_request
    rows = [
        c.OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                c.OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="note")
                for index in indexes
            ],
        )
        for topic, indexes in places.items()
    ]
    request = c.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=who.get("generation", -1),
        member_id=who.get("member_id", ""),
        topics=rows,
    )
    script.call(what, request, version, offset_commit_response.OffsetCommitResponse)


def classic_group(script: Script) -> None:
    request: Message
    wanted: Any  # Any: rows of whichever request comes next
    j, kind = join_group_request, join_group_response.JoinGroupResponse

    def join(what: str, version: int, member_id: str = "", **more: Any) -> Any:
        request = j.JoinGroupRequest(
            group_id=more.get("group", "classic"),
            session_timeout_ms=more.get("session", 10_000),
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            group_instance_id=more.get("instance"),
            protocol_type=more.get("type", "consumer"),
            protocols=[j.JoinGroupRequestProtocol("range", bytes.fromhex("000000000001000174ffffffff"))],
        )
        return script.call(what, request, version, kind)

    join("join without a group", 5, group="")
    join("join with a short session", 5, session=1)
    join("join as a stranger", 5, "stranger")
    asked = join("join", 5)
    joined = join("join again", 5, asked.member_id)
    s = sync_group_request

    def sync(what: str, member_id: str, generation: int) -> None:
        rows = [s.SyncGroupRequestAssignment(member_id, b"\x00\x01share")]
        request = s.SyncGroupRequest("classic", generation, member_id, assignments=rows)
        script.call(what, request, 3, sync_group_response.SyncGroupResponse)

    sync("sync as a stranger", "stranger", joined.generation_id)
    sync("sync in the past", joined.member_id, joined.generation_id - 1)
    sync("sync", joined.member_id, joined.generation_id)
    for what, member_id, generation in [
        ("beat", joined.member_id, joined.generation_id),
        ("beat in the past", joined.member_id, 0),
        ("beat as a stranger", "stranger", joined.generation_id),
    ]:
        request = heartbeat_request.HeartbeatRequest("classic", generation, member_id)
        script.call(what, request, 3, heartbeat_response.HeartbeatResponse)
    join("join with another type", 5, joined.member_id, type="connect")
    commit(
        script, "commit as a member", "classic", {"t": [0]}, member_id=joined.member_id, generation=joined.generation_id
    )
    commit(script, "commit in the past", "classic", {"t": [0]}, member_id=joined.member_id, generation=0)
    commit(script, "commit as nobody", "classic", {"t": [0]})
    for version in (4, 5, 6):
        request = describe_groups_request.DescribeGroupsRequest(["classic", "nobody", "simple"], False)
        answer = script.call(
            "describe groups", request, version, describe_groups_response.DescribeGroupsResponse, keep=False
        )
        for group in answer.groups:
            for member in group.members:
                member.client_host = ""
        script.answers.append((f"describe groups v{version}", script.plain(answer)))
    request = list_groups_request.ListGroupsRequest()
    script.call("list groups", request, 5, list_groups_response.ListGroupsResponse)
    o = offset_delete_request
    wanted = [o.OffsetDeleteRequestTopic("t", [o.OffsetDeleteRequestPartition(0)])]
    for group in ("classic", "simple", "nobody"):
        script.call(
            f"delete offset of {group}",
            o.OffsetDeleteRequest(group, wanted),
            0,
            offset_delete_response.OffsetDeleteResponse,
        )
    delete = delete_groups_request.DeleteGroupsRequest(["classic", "nobody"])
    script.call("delete a busy group", delete, 1, delete_groups_response.DeleteGroupsResponse)
    g = leave_group_request
    members = [g.MemberIdentity(joined.member_id), g.MemberIdentity("stranger")]
    script.call("leave", g.LeaveGroupRequest("classic", members=members), 4, leave_group_response.LeaveGroupResponse)
    script.call("delete an empty group", delete, 1, delete_groups_response.DeleteGroupsResponse)
    static = join("join as a static member", 5, group="static", instance="i")
    again = join("join as a static member again", 5, group="static", instance="i")
    assert again.member_id != static.member_id


def next_generation_group(script: Script) -> None:
    h, kind = consumer_group_heartbeat_request, consumer_group_heartbeat_response.ConsumerGroupHeartbeatResponse

    def beat(what: str, member_id: str, epoch: int, **more: Any) -> Any:
        request = h.ConsumerGroupHeartbeatRequest(
            group_id=more.get("group", "next"),
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=5000 if epoch == 0 else -1,
            subscribed_topic_names=["t"] if epoch == 0 else None,
            server_assignor=more.get("assignor"),
            topic_partitions=[] if epoch == 0 else None,
        )
        answer = script.call(what, request, 0, kind, keep=False)
        answer.heartbeat_interval_ms = 0
        plain = script.plain(answer)
        if answer.error_code:
            plain.pop("member_id")
        script.answers.append((f"{what} v0", plain))
        return answer

    first = beat("attend", "", 0)
    beat("attend with another assignor", first.member_id, first.member_epoch, assignor="nope")
    beat("attend as before", first.member_id, first.member_epoch)
    beat("attend in the future", first.member_id, first.member_epoch + 9)
    beat("attend as a stranger", "stranger", 3)
    beat("attend nothing", "stranger", 3, group="nothing")
    d = consumer_group_describe_request.ConsumerGroupDescribeRequest(["next", "nobody", "simple"], False)
    answer = script.call(
        "describe next", d, 0, consumer_group_describe_response.ConsumerGroupDescribeResponse, keep=False
    )
    for group in answer.groups:
        for member in group.members:
            member.client_host = ""
    script.answers.append(("describe next v0", script.plain(answer)))
    beat("attend no more", first.member_id, -1)
    migration(script, beat)


def migration(script: Script, beat: Callable[..., Any]) -> None:
    """A member of each protocol in one group. Shares may differ: they are the assignors' affair."""
    j = join_group_request
    subscription = encode_versioned(ConsumerProtocolSubscription(["t"]), 1)

    share = encode_versioned(ConsumerProtocolAssignment([TopicPartition("t", [0, 1, 2])]), 1)

    def join(what: str, member_id: str = "", names: Iterable[str] = ("range",)) -> Any:
        protocols = [j.JoinGroupRequestProtocol(name, subscription) for name in names]
        request = j.JoinGroupRequest(
            group_id="mixed",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=protocols,
        )
        return script.call(what, request, 5, join_group_response.JoinGroupResponse, keep=False)

    def note(what: str, answer: Any, *names: str) -> None:
        script.answers.append((what, {name: script.plain(getattr(answer, name), name) for name in names}))

    def sync(what: str, generation: int, **assignments: bytes) -> Any:
        rows = [sync_group_request.SyncGroupRequestAssignment(each, share) for each, share in assignments.items()]
        request = sync_group_request.SyncGroupRequest("mixed", generation, member_id, assignments=rows)
        answer = script.call(what, request, 3, sync_group_response.SyncGroupResponse, keep=False)
        note(what, answer, "error_code")
        return answer

    def classic_beat(what: str, generation: int) -> None:
        request = heartbeat_request.HeartbeatRequest("mixed", generation, member_id)
        script.call(what, request, 3, heartbeat_response.HeartbeatResponse)

    member_id = join("join a group to be mixed").member_id
    joined = join("join a group to be mixed again", member_id)
    sync("sync before the upgrade", joined.generation_id, **{member_id: share})
    newcomer = beat("attend the classic group", "", 0, group="mixed")
    classic_beat("beat after the upgrade", joined.generation_id)
    commit(
        script, "commit after the upgrade", "mixed", {"t": [0]}, member_id=member_id, generation=joined.generation_id
    )
    note("join with nothing in common", join("", "stranger", ["other"]), "error_code", "protocol_name", "leader")
    note("join without an id", join(""), "error_code", "protocol_name", "leader")
    again = join("", member_id)
    note("join after the upgrade", again, "error_code", "protocol_name", "leader", "members")
    sync("sync after the upgrade", again.generation_id)
    sync("sync in the past", joined.generation_id - 1)
    classic_beat("beat when settled in the past", joined.generation_id - 1)
    for version in (4, 6):
        request = describe_groups_request.DescribeGroupsRequest(["mixed"], False)
        script.call("describe a mixed group", request, version, describe_groups_response.DescribeGroupsResponse)
    beat("attend the mixed group no more", newcomer.member_id, -1, group="mixed")
    classic_beat("beat after the downgrade", again.generation_id)
    identity = leave_group_request.MemberIdentity(member_id)
    leave = leave_group_request.LeaveGroupRequest("mixed", members=[identity])
    script.call("leave after the downgrade", leave, 4, leave_group_response.LeaveGroupResponse)


def transactions(script: Script) -> None:
    i, kind = init_producer_id_request, init_producer_id_response.InitProducerIdResponse

    def init(what: str, name: str, timeout_ms: int = 60_000, version: int = 4, **was: int) -> Any:
        request = i.InitProducerIdRequest(name, timeout_ms, was.get("producer_id", -1), was.get("epoch", -1))
        return script.call(what, request, version, kind)

    init("init without a name", "")
    init("init for too long", "x", 900_001)

    def is_in() -> int:
        found.append(script.client.call(i.InitProducerIdRequest("x", 60_000), 4, kind))
        return int(found[-1].error_code)

    found: list[Any] = []
    eventually_zero(is_in)
    who = (found[-1].producer_id, found[-1].producer_epoch)

    def add(what: str, name: str, producer: tuple[int, int], partitions: list[int], version: int = 3) -> None:
        a = add_partitions_to_txn_request
        request = a.AddPartitionsToTxnRequest(name, *producer, [a.AddPartitionsToTxnTopic("t", partitions)])
        script.call(what, request, version, add_partitions_to_txn_response.AddPartitionsToTxnResponse)

    def end(what: str, name: str, producer: tuple[int, int], *, commits: bool, version: int = 3) -> None:
        request = end_txn_request.EndTxnRequest(name, *producer, commits)

        def ended() -> int:
            answers.append(script.client.call(request, version, end_txn_response.EndTxnResponse))
            # Still being completed: ours waits, Kafka's asks to come back.
            return int(answers[-1].error_code) if answers[-1].error_code == 51 else 0

        answers: list[Any] = []
        eventually_zero(ended)
        script.answers.append((f"{what} v{version}", script.plain(answers[-1])))

    add("add to a stranger's", "stranger", who, [0])
    add("add as somebody else", "x", (who[0] + 999, 0), [0])
    add("add in the past, old", "x", (who[0], who[1] - 1), [0], 1)
    add("add in the past", "x", (who[0], who[1] - 1), [0], 2)
    add("add what is not there", "x", who, [0, 99])
    add("add", "x", who, [0])
    add("add again", "x", who, [0])
    sent = batch([b"tx"], producer_id=who[0], producer_epoch=who[1], base_sequence=0, is_transactional=True)
    produced = produce_request("t", 0, sent)
    produced.transactional_id = "x"
    script.call("produce in a transaction", produced, 9, _produce_response())
    describe(script, "while open")
    fetch(script, "while open")
    o = add_offsets_to_txn_request.AddOffsetsToTxnRequest("x", *who, "in-transaction")
    script.call("add offsets", o, 3, add_offsets_to_txn_response.AddOffsetsToTxnResponse)
    c = txn_offset_commit_request
    rows = [
        c.TxnOffsetCommitRequestTopic(
            "t", [c.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
        )
    ]
    request = c.TxnOffsetCommitRequest("x", "in-transaction", *who, topics=rows)
    script.call("commit offsets", request, 3, txn_offset_commit_response.TxnOffsetCommitResponse)
    f = offset_fetch_request
    stable = f.OffsetFetchRequest(
        groups=[
            f.OffsetFetchRequestGroup(
                "in-transaction", topics=[f.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
            )
        ],
        require_stable=True,
    )
    script.call("fetch unstable offsets", stable, 8, offset_fetch_response.OffsetFetchResponse)
    end("end as somebody else", "x", (who[0] + 999, 0), commits=True)
    end("end in the past", "x", (who[0], who[1] - 1), commits=True)
    end("commit", "x", who, commits=True)
    time.sleep(0.5)
    end("commit again", "x", who, commits=True)
    end("abort what is committed", "x", who, commits=False)
    script.call("fetch stable offsets", stable, 8, offset_fetch_response.OffsetFetchResponse)
    describe(script, "when done")
    fetch(script, "when done")
    init("init in the past", "x", producer_id=who[0], epoch=who[1] - 1)
    init("init as somebody else, old", "x", version=3, producer_id=who[0] + 999, epoch=0)
    init("init in turn", "x", producer_id=who[0], epoch=who[1])
    init("init in turn again", "x", producer_id=who[0], epoch=who[1])


def describe(script: Script, when: str) -> None:
    request: Message
    request = describe_transactions_request.DescribeTransactionsRequest(["x", "nobody"])
    script.call(f"describe {when}", request, 0, describe_transactions_response.DescribeTransactionsResponse)
    listing = list_transactions_request.ListTransactionsRequest(["Ongoing", "Nonsense"])
    script.call(f"list {when}", listing, 0, list_transactions_response.ListTransactionsResponse)
    p = describe_producers_request
    request = p.DescribeProducersRequest([p.TopicRequest("t", [0, 99])])
    script.call(f"describe producers {when}", request, 0, describe_producers_response.DescribeProducersResponse)


def fetch(script: Script, when: str) -> None:
    q = fetch_request
    for isolation in (0, 1):
        wanted = q.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
        request = q.FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[q.FetchTopic(topic="t", partitions=[wanted])],
        )
        script.call(f"fetch {isolation} {when}", request, 11, fetch_response.FetchResponse)


def endings(script: Script) -> None:
    request = delete_topics_request.DeleteTopicsRequest(topic_names=["t", "nowhere"], timeout_ms=10_000)
    script.call("delete topics", request, 5, delete_topics_response.DeleteTopicsResponse)
