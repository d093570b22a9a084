"""A search of a whole topic: the bucket in processes of its own, and the tail; complete, or said not to be."""

import json
import subprocess
import sys
import time
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from tests.support.node import NodeProcess, eventually

COUNT = 20_000


def data_of(answer: httpx.Response) -> Any:  # Any: JSON
    assert answer.status_code == 200, answer.text
    return answer.json()["data"]


@pytest.fixture(scope="module")
def searched(node: NodeProcess) -> str:
    """A topic whose older records are in the bucket, and the newest on the disk alone perhaps."""
    with httpx.Client(base_url=f"http://{node.endpoints['admin']}/api/v1", timeout=60) as api:
        data_of(api.post("/topics", json={"name": "searched", "partitions": 3}))
        producer = Producer(
            {"bootstrap.servers": node.kafka, "compression.type": "zstd", "partitioner": "murmur2_random"}
        )
        for number in range(COUNT):
            value = {"n": number, "user": f"user-{number % 100}", "text": "x" * 50}
            producer.produce("searched", key=f"key-{number}".encode(), value=json.dumps(value).encode())
            if number % 1000 == 0:
                producer.flush()
        producer.flush()
        eventually(lambda: bool(data_of(api.get("/topics/searched/segments"))["segments"]), 60, "nothing was uploaded")
        producer.produce("searched", key=b"last", value=b'{"user": "user-7", "n": -1}')
        producer.flush()
    return "searched"


def search(api: httpx.Client, topic: str, **fields: Any) -> Any:  # Any: JSON
    return ended(api, data_of(api.post(f"/topics/{topic}/search", json=fields)))


def ended(api: httpx.Client, operation: Any) -> Any:  # Any: as above
    found: list[Any] = []  # Any: as above

    def is_ended() -> bool:
        found[:] = [data_of(api.get(f"/operations/{operation['id']}"))]
        return bool(found[0]["state"] != "running")

    eventually(is_ended, 60, "the search does not end")
    assert found[0]["state"] == "done", found[0]
    return found[0]


def test_every_record_is_looked_at_and_every_match_counted(api: httpx.Client, searched: str) -> None:
    operation = search(api, searched, filter='json.user == "user-7"', limit=20)
    result = operation["result"]
    assert (result["scanned"], result["matched"]) == (COUNT + 1, COUNT // 100 + 1)
    assert (result["is_complete"], result["unreadable"]) == (True, [])
    assert len(result["records"]) == 20
    times = [each["timestamp_ms"] for each in result["records"]]
    assert times == sorted(times, reverse=True)
    assert result["records"][0]["key"]["data"] == "last"
    assert operation["done"] == operation["total"] > 0


def test_a_key_is_looked_for_only_where_it_hashes_to(api: httpx.Client, searched: str) -> None:
    result = search(api, searched, key="key-12345")["result"]
    assert [json.loads(each["value"]["data"])["n"] for each in result["records"]] == [12345]
    assert result["scanned"] < COUNT * 2 / 3
    assert search(api, searched, filter='key == "key-12345"')["result"]["matched"] == 1


def test_records_that_were_deleted_are_not_found(api: httpx.Client, topic: str) -> None:
    for number in range(4):
        data_of(api.post(f"/topics/{topic}/records", json={"value": {"data": f"v{number}"}, "partition": 0}))
    data_of(api.post(f"/topics/{topic}/partitions/0/delete-records", json={"before": 2}))
    found = search(api, topic, filter='value contains "v"')["result"]
    assert sorted(each["value"]["data"] for each in found["records"]) == ["v2", "v3"]


def test_a_search_can_be_cancelled(api: httpx.Client, searched: str) -> None:
    operation = data_of(api.post(f"/topics/{searched}/search", json={"filter": "json.n > 5"}))
    ended = data_of(api.post(f"/operations/{operation['id']}/cancel"))
    assert ended["state"] in ("cancelled", "done")


@pytest.mark.parametrize("interruptions", [1, 4])
def test_a_search_that_is_cancelled_goes_on_where_it_was_and_counts_nothing_twice(
    api: httpx.Client, searched: str, interruptions: int
) -> None:
    operation = data_of(api.post(f"/topics/{searched}/search", json={"filter": "json.n >= 0", "limit": 30}))
    path = f"/operations/{operation['id']}"
    for number in range(interruptions):
        # Later and later: before it has begun, while processes start, in the midst of it.
        time.sleep(0.15 * number)
        cancelled = data_of(api.post(f"{path}/cancel"))
        assert cancelled["can_resume"] is (cancelled["state"] == "cancelled")
        if cancelled["can_resume"]:
            assert data_of(api.post(f"{path}/resume"))["state"] == "running"
    result = ended(api, operation)["result"]
    assert (result["scanned"], result["matched"]) == (COUNT + 1, COUNT)
    assert (result["is_complete"], len(result["records"])) == (True, 30)
    assert api.post(f"{path}/resume").status_code == 409


def test_a_filter_that_is_none_is_refused_before_anything_begins(api: httpx.Client, searched: str) -> None:
    assert api.post(f"/topics/{searched}/search", json={"filter": "json.n >"}).status_code == 400


def test_a_record_is_traced_from_the_wal_to_its_object_and_groups(
    api: httpx.Client, node: NodeProcess, searched: str, name: str
) -> None:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([searched])
    message = None
    while message is None:
        message = consumer.poll(1)
    consumer.commit(message, asynchronous=False)
    consumer.close()
    path = f"/topics/{searched}/partitions/{message.partition()}/records"
    trace = data_of(api.get(f"{path}/0/trace"))
    done = {step["name"]: step["is_done"] for step in trace["steps"]}
    assert done == {"appended": True, "record": True, "durable": True, "readable": True, "in object storage": True}
    assert trace["object"]["base_offset"] <= 0 < trace["object"]["end_offset"]
    assert {"group": name, "committed": message.offset() + 1, "is_past": True} in trace["groups"]
    nothing = data_of(api.get(f"{path}/9999999/trace"))
    assert nothing["record"] is None
    assert [step["is_done"] for step in nothing["steps"]][:2] == [False, False]
    assert "given this offset yet" in nothing["steps"][1]["sentence"]


def test_starting_processes_leaves_every_line_of_the_log_json(
    api: httpx.Client, node: NodeProcess, searched: str
) -> None:
    search(api, searched, filter='key == "nobody"')
    for line in node.log_path.read_text().splitlines():
        json.loads(line)


def test_the_command_line_traces_a_record_and_says_what_is_wrong(node: NodeProcess, searched: str) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headrace", "trace", *arguments, "--api", f"http://{node.endpoints['admin']}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    shown = run(f"{searched}/0/0")
    assert shown.returncode == 0, shown.stderr
    assert "in object storage" in shown.stdout
    assert json.loads(run(f"{searched}/0/0", "--json").stdout)["offset"] == 0
    assert "no partition 99" in run(f"{searched}/99/0").stderr
    assert "expected TOPIC/PARTITION/OFFSET" in run("searched").stderr
