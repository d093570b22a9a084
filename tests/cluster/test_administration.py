"""The API and the console of a cluster: every broker shows all of them, says who leads what, and sends people there."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from google.protobuf import json_format
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from tests.support.shared_nodes import SharedNodes, shared_nodes

from headrace.admin.application import gateway_routes
from headrace.admin.gateway import Gateway, GrpcGateway
from headrace.admin.grpc.schema import PACKAGE, SERVICE, Messages
from headrace.admin.guard import Guard
from headrace.admin.server import AdminDoor
from headrace.admin.session import Health
from headrace.admin.session import Node as AdminView
from headrace.admin.settings import AdminSettings
from headrace.control.etcd.server import EtcdServer
from headrace.doors.kafka.errors import code_of
from headrace.node.controller import broker_addresses
from headrace.telemetry.metrics import Metrics
from headrace.wire.kafka.error_codes import ErrorCode

SETTINGS = {"listen.admin": "127.0.0.1:0", "listen.grpc": "127.0.0.1:0"}
TIMEOUT_S = 60.0
PARTITIONS = 6
PATIENCE_S = 30.0
PASSWORD = "wood and water"
MESSAGES = Messages()


class Members:
    def __init__(self, nodes: SharedNodes) -> None:
        self.nodes = nodes

    def admin(self, name: str) -> str:
        return "{}:{}".format(*self.nodes.members[name].node.endpoints["admin"])

    async def get(self, name: str, path: str, **query: Any) -> httpx.Response:  # Any: as httpx takes them
        async with httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=True) as client:
            return await client.get(f"http://{self.admin(name)}{path}", params=query or None)

    async def post(self, name: str, path: str, body: Any, **query: Any) -> httpx.Response:  # Any: JSON
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            return await client.post(f"http://{self.admin(name)}/api/v1{path}", json=body, params=query or None)

    async def data(self, name: str, path: str, **query: Any) -> Any:  # Any: JSON
        answer = await self.get(name, f"/api/v1{path}", **query)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    async def led_by(self, name: str) -> list[int]:
        """Partitions of `orders` that this broker serves."""
        rows = (await self.data(name, "/topics/orders/partitions"))["partitions"]
        return [row["partition"] for row in rows if row["is_led_here"]]


@asynccontextmanager
async def cluster(directory: Path, names: list[str]) -> AsyncIterator[Members]:
    async with shared_nodes(directory, names, SETTINGS) as nodes:
        members = Members(nodes)
        answer = await members.post(names[0], "/topics", {"name": "orders", "partitions": PARTITIONS})
        assert answer.status_code == 200, answer.text
        async with asyncio.timeout(TIMEOUT_S):
            while sum([len(await members.led_by(name)) for name in names]) < PARTITIONS:
                await asyncio.sleep(0.05)
        yield members


@pytest.mark.requirement("X3.1", "X3.2", "R3.81", "R3.82", "R3.86", "R3.87")
async def test_every_broker_shows_all_brokers_and_who_leads_what(tmp_path: Path) -> None:
    async with cluster(tmp_path, ["a", "b", "c"]) as members:
        for name in members.nodes.members:
            brokers = (await members.data(name, "/brokers"))["brokers"]
            assert [(each["id"], each["number"], each["online"]) for each in brokers] == [
                ("a", 1, True),
                ("b", 2, True),
                ("c", 3, True),
            ]
            assert [each["id"] for each in brokers if each["is_this"]] == [name]
            assert [each["partitions"] for each in brokers] == [2, 2, 2]
            assert {each["id"]: each["doors"]["admin"] for each in brokers} == {
                each: members.admin(each) for each in members.nodes.members
            }
            found = await members.data(name, "/cluster")
            assert (found["brokers"], found["partitions"], found["without_leader"]) == (3, PARTITIONS, 0)
            rows = (await members.data(name, "/topics/orders/partitions"))["partitions"]
            assert sorted(row["leader"] for row in rows) == [1, 1, 2, 2, 3, 3]
            assert sum(row["is_led_here"] for row in rows) == 2
            page = (await members.get(name, "/cluster")).text
            assert page.count("online</span>") == 3
            assert page.count("this one</span>") == 1


@pytest.mark.requirement("X3.2")
async def test_a_fenced_broker_is_shown_offline_and_what_nobody_leads_is_counted(tmp_path: Path) -> None:
    async with cluster(tmp_path, ["a", "b"]) as members:
        led = len(await members.led_by("b"))
        await members.nodes.fence("b")
        async with asyncio.timeout(TIMEOUT_S):
            while [each["online"] for each in (await members.data("a", "/brokers"))["brokers"]] != [True, False]:
                await asyncio.sleep(0.05)
        (row,) = [each for each in (await members.data("a", "/brokers"))["brokers"] if each["id"] == "b"]
        assert row["state"] == "fenced"
        assert (await members.data("a", "/cluster"))["without_leader"] == led
        page = (await members.get("a", "/cluster")).text
        assert "offline</span>" in page
        assert "partitions have no leader" in page


async def test_a_partition_of_another_broker_is_answered_with_the_way_there(tmp_path: Path) -> None:
    async with cluster(tmp_path, ["a", "b"]) as members:
        theirs, ours = (await members.led_by("b"))[0], (await members.led_by("a"))[0]
        for partition in (theirs, ours):
            leader = "b" if partition == theirs else "a"
            produced = await members.post(
                leader, "/topics/orders/records", {"partition": partition, "value": {"data": f"of {leader}"}}
            )
            assert produced.status_code == 200, produced.text
        for path in (f"/topics/orders/partitions/{theirs}/records/0", f"/topics/orders/records?partition={theirs}"):
            refused = await members.get("a", f"/api/v1{path}")
            assert refused.status_code == 503
            assert refused.json()["error"]["reason"] == "NOT_LEADER_OR_FOLLOWER"
            assert refused.json()["leader_hint"] == members.admin("b")
            async with httpx.AsyncClient() as client:
                found = await client.get(f"http://{refused.json()['leader_hint']}/api/v1{path}")
            assert "of b" in found.text
        # A page of all partitions shows those that are led here, and says which are not.
        shown = await members.data("a", "/topics/orders/records")
        assert [each["value"]["data"] for each in shown["records"]] == ["of a"]
        assert [(each["broker"], each["admin"]) for each in shown["elsewhere"]] == [("b", members.admin("b"))]
        assert theirs in shown["elsewhere"][0]["partitions"]
        for path in ("/topics/orders", "/topics/orders/partitions", f"/topics/orders/{theirs}/0"):
            page = await members.get("a", path)
            assert f"http://{members.admin('b')}{path}" in page.text, path
            assert page.status_code == (503 if path.endswith("/0") else 200)
        operation = (await members.post("a", "/topics/orders/search", {"filter": 'value contains "of"'})).json()["data"]
        async with asyncio.timeout(TIMEOUT_S):
            while (done := await members.data("a", f"/operations/{operation['id']}"))["state"] == "running":
                await asyncio.sleep(0.05)
        assert done["result"]["matched"] == 1
        assert done["result"]["is_complete"] is False
        assert f"partition {theirs} is led by b: search it there" in done["result"]["unreadable"]


async def test_grpc_gives_the_way_too(tmp_path: Path) -> None:
    async with cluster(tmp_path, ["a", "b"]) as members:
        theirs = (await members.led_by("b"))[0]
        address = "{}:{}".format(*members.nodes.members["a"].node.endpoints["grpc"])
        request = json_format.ParseDict(
            {"name": "orders", "partition": theirs, "offset": 0}, MESSAGES.of("DescribeRecordRequest")()
        )
        async with grpc.aio.insecure_channel(address) as channel:
            call = channel.unary_unary(
                f"/{PACKAGE}.{SERVICE}/DescribeRecord", request_serializer=lambda message: message.SerializeToString()
            )
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call(request, timeout=TIMEOUT_S)
        info = error_details_pb2.ErrorInfo()
        status = rpc_status.from_call(Answer(raised.value))
        assert status is not None
        assert status.details[0].Unpack(info)
        assert info.reason == "NOT_LEADER_OR_FOLLOWER"
        assert info.metadata["leader_hint"] == "{}:{}".format(*members.nodes.members["b"].node.endpoints["grpc"])


class Answer:
    """What `rpc_status` asks of a call, of one that has failed."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self._error = error

    def trailing_metadata(self) -> Any:  # Any: grpc's own
        return tuple((key, value) for key, value in self._error.trailing_metadata())

    def code(self) -> Any:  # Any: grpc's own
        return self._error.code()

    def details(self) -> str:
        return self._error.details() or ""


def commit(bootstrap: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    offsets = [TopicPartition("orders", index, 0) for index in range(PARTITIONS)]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            break
        except KafkaException as error:
            # Its coordinator has only just begun; the client leaves it to whoever commits by hand.
            if error.args[0].code() != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    consumer.close()


async def test_groups_are_shown_by_who_looks_after_them_and_no_reset_goes_to_a_made_up_end(tmp_path: Path) -> None:
    async with cluster(tmp_path, ["a", "b"]) as members:
        for name in ("a", "b"):
            for partition in await members.led_by(name):
                await members.post(name, "/topics/orders/records", {"partition": partition, "value": {"data": "x"}})
        await asyncio.to_thread(commit, members.nodes.bootstrap, "readers")
        home = await members.nodes.members["a"].broker.groups.leader_of("readers")
        (other,) = {"a", "b"} - {home}
        refused = await members.get(other, "/api/v1/groups/readers")
        assert refused.json()["error"]["reason"] == "NOT_COORDINATOR"
        assert refused.json()["leader_hint"] == members.admin(home)
        assert f"http://{members.admin(home)}/groups/readers" in (await members.get(other, "/groups/readers")).text
        assert (await members.data(other, "/cluster"))["groups"] is None
        # Lag is that of what is led here: the end of the others is not known.
        detail = await members.data(home, "/groups/readers")
        led = await members.led_by(home)
        assert detail["lag"] == len(led)
        assert {row["partition"] for row in detail["partitions"] if row["leader"] == other} == {*range(PARTITIONS)} - {
            *led
        }
        reset = await members.post(home, "/groups/readers/reset", {"target": "latest"})
        assert reset.status_code == 503
        assert "known to its leader" in reset.json()["error"]["message"]
        after = await members.data(home, "/groups/readers")
        assert [row["committed"] for row in after["partitions"]] == [0] * PARTITIONS


@asynccontextmanager
async def controller(members: Members) -> AsyncIterator[tuple[str, str]]:
    """The doors that a controller of this cluster has for administrators: REST and gRPC."""
    addresses = partial(broker_addresses, members.nodes.store)
    settings = AdminSettings(listen="127.0.0.1:0")
    health = Health(is_ready=True, broker_id="c1", version="0", uptime_ms=1)
    door = AdminDoor(
        settings,
        AdminView(metrics=Metrics(), health=lambda: health),
        more=gateway_routes(settings, addresses, code_of),
    )
    rpc = EtcdServer(members.nodes.store, others=[GrpcGateway(addresses)])
    await door.start()
    port = await rpc.start("127.0.0.1:0")
    try:
        yield "{}:{}".format(*door.address), f"127.0.0.1:{port}"
    finally:
        await door.stop()
        await rpc.stop()


@pytest.mark.requirement("R3.20", "R3.81", "R3.82", "R3.83", "R3.84", "R3.85", "R3.87", "R3.89")
async def test_a_controller_answers_administrators_for_the_whole_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path, ["a", "b"]) as members, controller(members) as (rest, rpc):
        await asyncio.to_thread(commit, members.nodes.bootstrap, "readers")
        async with httpx.AsyncClient(base_url=f"http://{rest}/api/v1", timeout=TIMEOUT_S) as client:
            assert [row["id"] for row in (await client.get("/brokers")).json()["data"]["brokers"]] == ["a", "b"]
            # Wherever they are led, and whoever looks after groups.
            for partition in range(PARTITIONS):
                body = {"partition": partition, "value": {"data": f"in {partition}"}}
                assert (await client.post("/topics/orders/records", json=body)).status_code == 200
                found = await client.get(f"/topics/orders/partitions/{partition}/records/0")
                assert found.json()["data"]["value"]["data"] == f"in {partition}"
            assert (await client.get("/groups/readers")).json()["data"]["group"] == "readers"
            read = await client.get("/topics/orders/configs")
            change = {"set": {"retention.ms": "60000"}}
            tag = {"if-match": read.headers["etag"]}
            assert (await client.patch("/topics/orders/configs", json=change, headers=tag)).status_code == 200
            assert (await client.patch("/topics/orders/configs", json=change, headers=tag)).status_code == 412
            assert (await client.get("/topics/nowhere")).json()["error"]["reason"] == "UNKNOWN_TOPIC_OR_PARTITION"
            # What guards a broker guards it here too.
            for headers in (
                {"host": "evil.example"},
                {"origin": "https://evil.example"},
                {"sec-fetch-site": "cross-site"},
            ):
                refused = await client.delete("/topics/orders", headers=headers)
                assert refused.status_code == 403
            assert (
                await client.post("/topics", content="{}", headers={"content-type": "text/plain"})
            ).status_code == 400
            assert (await client.get("/topics/orders")).status_code == 200
        async with grpc.aio.insecure_channel(rpc) as channel:
            for partition in range(PARTITIONS):
                request = json_format.ParseDict(
                    {"name": "orders", "partition": partition, "offset": 0}, MESSAGES.of("DescribeRecordRequest")()
                )
                call = channel.unary_unary(
                    f"/{PACKAGE}.{SERVICE}/DescribeRecord",
                    request_serializer=lambda message: message.SerializeToString(),
                    response_deserializer=MESSAGES.of("DescribeRecordResponse").FromString,
                )
                assert (await call(request, timeout=TIMEOUT_S)).value.data == f"in {partition}"
            call = channel.unary_unary(f"/{PACKAGE}.{SERVICE}/DescribeTopic")
            nowhere = MESSAGES.of("DescribeTopicRequest")(name="nowhere").SerializeToString()
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await call(nowhere, timeout=TIMEOUT_S)
            assert raised.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_controller_passes_on_who_somebody_says_they_are_and_brokers_ask(tmp_path: Path) -> None:
    security = {"security.authorization.enable": "true", "listener.kafka.principal": "User:inside"}
    async with shared_nodes(tmp_path, ["a", "b"], {**SETTINGS, **security}) as nodes:
        access = nodes.members["a"].broker.access
        assert await access.ensure_administrator("root", PASSWORD)
        verifiers = await access.users.new_verifiers(PASSWORD)
        await access.change_verifiers("reader", lambda _: verifiers)
        async with asyncio.timeout(TIMEOUT_S):
            while not nodes.members["b"].broker.access.users.verifiers("reader"):
                await asyncio.sleep(0.01)
        async with (
            controller(Members(nodes)) as (rest, rpc),
            httpx.AsyncClient(base_url=f"http://{rest}/api/v1", timeout=TIMEOUT_S) as client,
            grpc.aio.insecure_channel(rpc) as channel,
        ):
            made = await client.post("/topics", json={"name": "orders"}, auth=("root", PASSWORD))
            assert made.status_code == 200, made.text
            call = channel.unary_unary(f"/{PACKAGE}.{SERVICE}/DescribeCluster")
            for auth, status, code in (
                (("root", PASSWORD), 200, grpc.StatusCode.OK),
                (("reader", PASSWORD), 403, grpc.StatusCode.PERMISSION_DENIED),
                (("root", "wrong"), 401, grpc.StatusCode.UNAUTHENTICATED),
                (None, 401, grpc.StatusCode.UNAUTHENTICATED),
            ):
                assert (await client.get("/cluster", auth=auth)).status_code == status, auth
                said = "" if auth is None else "Basic " + base64.b64encode(":".join(auth).encode()).decode()
                metadata = (("authorization", said),) if said else ()
                asked = call(b"", timeout=TIMEOUT_S, metadata=metadata)
                assert await asked.code() is code, auth


async def test_a_controller_without_brokers_says_so_and_answers_this_machine_only() -> None:
    async def nobody(listener: str) -> list[str]:
        return []

    gateway = Gateway(nobody, Guard(["c.example"]), code_of)
    for address, status in (("127.0.0.1", 503), ("10.0.0.1", 401)):
        transport = httpx.ASGITransport(app=gateway, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://c.example") as client:
            answer = await client.get("/api/v1/topics")
            assert answer.status_code == status
            assert answer.json()["success"] is False


async def test_a_topic_made_through_kafka_is_seen_by_every_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path, ["a", "b"]) as members:
        admin = AdminClient({"bootstrap.servers": members.nodes.bootstrap})
        created = admin.create_topics([NewTopic("other", 2, 1)])["other"]
        await asyncio.to_thread(created.result, TIMEOUT_S)
        for name in ("a", "b"):
            async with asyncio.timeout(TIMEOUT_S):
                while [row["name"] for row in (await members.data(name, "/topics"))["topics"]] != ["orders", "other"]:
                    await asyncio.sleep(0.05)
