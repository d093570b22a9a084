"""The audit of several brokers: one of them leads its topic, and what the others have to tell is in it too."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.support.node import eventually
from tests.support.raw_kafka import RawKafka
from tests.support.shared_nodes import SharedNodes, shared_nodes

from headrace.broker.access.audit import AUDIT_TOPIC
from headrace.broker.access.words import Principal
from headrace.wire.kafka.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.kafka.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

NAMES = ("a", "b", "c")
SETTINGS = {"security.audit.enable": "true"}
Event = dict[str, Any]  # Any: JSON


async def change(nodes: SharedNodes, name: str, what: str) -> None:
    audit = nodes.members[name].broker.access.audit
    assert audit is not None
    audit.changed(Principal("root"), "", {"change": what})
    await audit.settled()


def leader(nodes: SharedNodes) -> str:
    return nodes.members["a"].broker.topics.get(AUDIT_TOPIC).leaders[0]


def kept(nodes: SharedNodes) -> list[Event]:
    with RawKafka(nodes.members[leader(nodes)].address) as client:
        return [json.loads(record.value or b"") for record in client.read_all(AUDIT_TOPIC, 0)]


async def changes(nodes: SharedNodes) -> list[tuple[str, str]]:
    """By whom, and what; each once however often it was sent."""
    found = {(each["source"], each["id"]): each["data"].get("change") for each in await asyncio.to_thread(kept, nodes)}
    return [(source.removeprefix("/headrace/"), what) for (source, _), what in found.items()]


async def test_events_of_every_broker_are_kept_whoever_leads(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, NAMES, SETTINGS) as nodes:
        await asyncio.gather(*(change(nodes, name, "first") for name in NAMES))
        await eventually_all(nodes, {(name, "first") for name in NAMES})
        before = leader(nodes)
        await nodes.move(before, [name for name in NAMES if name != before])
        for name in NAMES:
            await change(nodes, name, "second")
        await eventually_all(nodes, {(name, what) for name in NAMES for what in ("first", "second")})
        assert leader(nodes) != before


async def test_a_change_by_a_kafka_request_is_told_with_what_was_before(tmp_path: Path) -> None:
    async with shared_nodes(tmp_path, NAMES, SETTINGS) as nodes:
        await change(nodes, "a", "first")
        other = next(name for name in NAMES if name != leader(nodes))
        await asyncio.to_thread(alter, nodes.members[other].address)
        await eventually_all(nodes, {(other, "UpdateTopicConfig")})
        (found,) = [each for each in await asyncio.to_thread(kept, nodes) if "after" in each["data"]]
        assert found["source"] == f"/headrace/{other}"
        assert found["type"] == "headrace.admin.changed"
        assert found["data"]["request"]["name"] == AUDIT_TOPIC
        assert found["data"]["before"]["retention.ms"] == "7776000000"
        assert found["data"]["after"]["retention.ms"] == "8640000000"


def alter(address: str) -> None:
    resource = AlterConfigsResource(2, AUDIT_TOPIC, [AlterableConfig("retention.ms", 0, "8640000000")])
    with RawKafka(address) as client:
        answer = client.call(IncrementalAlterConfigsRequest([resource]), 1, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0, answer


async def eventually_all(nodes: SharedNodes, wanted: set[tuple[str, str]]) -> None:
    loop = asyncio.get_running_loop()

    def are_there() -> bool:
        found = asyncio.run_coroutine_threadsafe(changes(nodes), loop).result(30)
        return wanted <= set(found)

    await asyncio.to_thread(eventually, are_there, 60, f"not all of {sorted(wanted)}")
