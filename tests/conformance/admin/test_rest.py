"""The administrative API over HTTP: paths and envelope of X3.1, and what each verb does."""

import threading
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from tests.support.node import NodeProcess, eventually


def data_of(answer: httpx.Response) -> Any:  # Any: JSON
    body = answer.json()
    assert answer.status_code == 200, body
    assert body["success"] is True
    assert body["error"] is None
    return body["data"]


def error_of(answer: httpx.Response, status: int) -> Any:  # Any: JSON
    body = answer.json()
    assert answer.status_code == status, body
    assert body["success"] is False
    assert body["data"] is None
    return body["error"]


def produce(api: httpx.Client, topic: str, value: str, **fields: Any) -> Any:  # Any: JSON
    return data_of(api.post(f"/topics/{topic}/records", json={"value": {"data": value}, **fields}))


@pytest.mark.requirement("X3.1", "R3.82", "R3.84", "R3.83")
def test_a_topic_is_created_described_listed_and_deleted(api: httpx.Client, name: str) -> None:
    created = data_of(api.post("/topics", json={"name": name, "partitions": 3, "config": {"retention.ms": "1000"}}))
    assert created["partitions"] == 3
    assert created["config"] == {"retention.ms": "1000"}
    assert data_of(api.get(f"/topics/{name}"))["id"] == created["id"]
    assert [row["name"] for row in data_of(api.get("/topics", params={"filter": name}))["topics"]] == [name]
    assert data_of(api.delete(f"/topics/{name}"))["is_dry_run"] is False
    assert error_of(api.get(f"/topics/{name}"), 404)["reason"] == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.requirement("X3.1", "R3.86", "R3.87", "X3.2")
def test_cluster_and_brokers_say_who_they_are(api: httpx.Client, node: NodeProcess) -> None:
    cluster = data_of(api.get("/cluster"))
    assert cluster["brokers"] == 1
    (broker,) = data_of(api.get("/brokers"))["brokers"]
    assert {"id", "host", "port_quic", "port_rpc", "rack_id", "online"} <= broker.keys()
    assert broker["online"] is True
    configs = data_of(api.get(f"/brokers/{broker['number']}/configs"))["configs"]
    assert configs["broker.id"] == str(broker["number"])
    assert httpx.get(f"http://{node.endpoints['admin']}/ready").text == "ready\n"


def test_what_is_not_there_yet_says_so(api: httpx.Client) -> None:
    assert error_of(api.post("/cluster/rebalance"), 501)["reason"] == "UNSUPPORTED_VERSION"
    (broker,) = data_of(api.get("/brokers"))["brokers"]
    error_of(api.post(f"/brokers/{broker['number']}/drain"), 501)


def test_a_dry_run_checks_everything_and_changes_nothing(api: httpx.Client, name: str) -> None:
    dry = {"dry_run": "true"}
    data_of(api.post("/topics", params=dry, json={"name": name}))
    error_of(api.get(f"/topics/{name}"), 404)
    wrong = api.post("/topics", params=dry, json={"name": name, "config": {"retention.ms": "soon"}})
    assert "retention.ms" in error_of(wrong, 400)["message"]
    data_of(api.post("/topics", json={"name": name}))
    produce(api, name, "x")
    assert data_of(api.delete(f"/topics/{name}", params=dry))["is_dry_run"] is True
    data_of(api.post(f"/topics/{name}/partitions", params=dry, json={"count": 5}))
    deleted = api.post(f"/topics/{name}/partitions/0/delete-records", params=dry, json={"before": -1})
    assert data_of(deleted) == {"log_start": 1, "is_dry_run": True}
    api.patch(f"/topics/{name}/configs", params=dry, json={"set": {"retention.ms": "5"}})
    found = data_of(api.get(f"/topics/{name}"))
    assert (found["partitions"], found["records"], found["config"]) == (1, 1, {})


@pytest.mark.requirement("R3.85")
def test_configs_change_only_from_the_state_that_was_read(api: httpx.Client, topic: str) -> None:
    read = api.get(f"/topics/{topic}/configs")
    tag = read.headers["etag"]
    changed = api.patch(f"/topics/{topic}/configs", json={"set": {"retention.ms": "60000"}}, headers={"if-match": tag})
    row = next(row for row in data_of(changed)["configs"] if row["name"] == "retention.ms")
    assert (row["value"], row["source"]) == ("60000", "topic")
    stale = api.patch(f"/topics/{topic}/configs", json={"unset": ["retention.ms"]}, headers={"if-match": tag})
    error_of(stale, 412)
    fresh = changed.headers["etag"]
    data_of(api.patch(f"/topics/{topic}/configs", json={"unset": ["retention.ms"]}, headers={"if-match": fresh}))
    assert api.get(f"/topics/{topic}/configs").headers["etag"] == tag


def test_lists_come_in_pages_that_neither_repeat_nor_lose(api: httpx.Client, name: str) -> None:
    names = [f"{name}-{number:02}" for number in range(7)]
    for each in names:
        data_of(api.post("/topics", json={"name": each}))
    found: list[str] = []
    token = ""
    while True:
        parameters = {"filter": name, "page_size": "3", "order_by": "name desc", "page_token": token}
        page = data_of(api.get("/topics", params=parameters))
        found += [row["name"] for row in page["topics"]]
        # One that sorts before what was shown already, and comes meanwhile, repeats nothing.
        if not token:
            data_of(api.post("/topics", json={"name": f"{name}-99"}))
        token = page["next_page_token"]
        if not token:
            break
    assert found == sorted(names, reverse=True)
    assert "page_token" in error_of(api.get("/topics", params={"page_token": "bm9uc2Vuc2U="}), 400)["message"]
    assert "order_by" in error_of(api.get("/topics", params={"order_by": "colour"}), 400)["message"]


def test_records_are_read_from_either_end_an_offset_a_time_and_by_key(api: httpx.Client, topic: str) -> None:
    for number in range(5):
        produce(api, topic, f'{{"n": {number}}}', partition=0, timestamp_ms=1_700_000_000_000 + number)
    by_key = produce(api, topic, "keyed", key={"data": "alice"})

    def values(**query: Any) -> list[str]:  # Any: query parameters
        found = data_of(api.get(f"/topics/{topic}/records", params=query))
        return [record["value"]["data"] for record in found["records"]]

    assert values(start="oldest", partition=0, limit=2) == ['{"n": 0}', '{"n": 1}']
    assert values(start="newest", partition=0, limit=2)[-1] in ('{"n": 3}', "keyed", '{"n": 4}')
    assert values(start="offset", offset=3, partition=0, limit=1) == ['{"n": 3}']
    assert values(start="time", timestamp_ms=1_700_000_000_002, partition=0, limit=1) == ['{"n": 2}']
    assert values(key="alice") == ["keyed"]
    # The newest that match, though newer ones do not.
    assert values(start="newest", partition=0, limit=2, filter="json.n < 2") == ['{"n": 1}', '{"n": 0}']
    assert values(start="oldest", partition=0, filter="json.n >= 3") == ['{"n": 3}', '{"n": 4}']
    one = data_of(api.get(f"/topics/{topic}/partitions/{by_key['partition']}/records/{by_key['offset']}"))
    assert one["key"]["data"] == "alice"
    error_of(api.get(f"/topics/{topic}/partitions/0/records/999"), 400)
    wrong = error_of(api.get(f"/topics/{topic}/records", params={"filter": "json.n >"}), 400)
    assert "filter" in wrong["message"]


def test_a_record_in_the_middle_of_an_uploaded_batch_is_found_by_its_offset(
    api: httpx.Client, node: NodeProcess, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 500})
    for number in range(20):
        producer.produce(topic, f"value {number}".encode(), partition=0)
    producer.flush()
    eventually(lambda: bool(data_of(api.get(f"/topics/{topic}/segments"))["segments"]), 60, "nothing was uploaded")
    before = data_of(api.get("/metrics/history", params={"names": "bytes_in", "minutes": 60}))["series"][0]["times_ms"]
    # After a restart nothing of it is in memory.
    node.restart()
    with httpx.Client(base_url=f"http://{node.endpoints['admin']}/api/v1", timeout=60) as again:
        found = data_of(again.get(f"/topics/{topic}/partitions/0/records/7"))
        assert found["value"]["data"] == "value 7"
        listed = data_of(
            again.get(f"/topics/{topic}/records", params={"start": "offset", "offset": 7, "partition": 0, "limit": 1})
        )
        assert [record["offset"] for record in listed["records"]] == [7]
        # The charts go on where they were.
        history = {"names": "bucket_bytes", "minutes": "60"}
        after = data_of(again.get("/metrics/history", params=history))["series"][0]["times_ms"]
        assert set(before) <= set(after)
        assert len(after) > len(before)


def test_bytes_that_are_no_text_come_as_base64_and_64_bit_numbers_exact(api: httpx.Client, topic: str) -> None:
    data_of(
        api.post(f"/topics/{topic}/records", json={"value": {"data": "AP8=", "encoding": "base64"}, "partition": 0})
    )
    produce(api, topic, '{"id": 9007199254740993}', partition=0)
    first, second = data_of(api.get(f"/topics/{topic}/records", params={"start": "oldest"}))["records"]
    assert first["value"] == {"encoding": "base64", "data": "AP8=", "size": 2, "is_cut": False}
    assert second["value"]["data"] == '{"id": 9007199254740993}'


@pytest.mark.requirement("R3.89", "R3.90")
def test_a_group_is_described_with_its_lag_and_reset_after_a_preview(
    api: httpx.Client, node: NodeProcess, topic: str, name: str
) -> None:
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in range(10):
        producer.produce(topic, str(number).encode(), partition=0)
    producer.flush()
    group = f"{name}/with a slash"
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    seen = 0
    while seen < 4:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen += 1
            consumer.commit(message, asynchronous=False)
    path = "/groups/" + group.replace("/", "%2F")
    found = data_of(api.get(path))
    assert (found["state"], len(found["members"]), found["lag"]) == ("Stable", 1, 6)
    row = next(row for row in found["partitions"] if row["partition"] == 0)
    assert (row["committed"], row["lag"]) == (4, 6)
    assert row["lag_ms"] >= 0
    assert row["member_id"] == found["members"][0]["member_id"]
    assert error_of(api.post(f"{path}/reset", json={"target": "earliest"}), 409)["reason"] == "NON_EMPTY_GROUP"
    consumer.close()
    plan = data_of(api.post(f"{path}/reset", params={"dry_run": "true"}, json={"target": "earliest"}))
    assert {"topic": topic, "partition": 0, "committed": 4, "offset": 0} in plan["moves"]
    assert data_of(api.get(path))["lag"] == 6
    data_of(api.post(f"{path}/reset", json={"target": "shift", "value": -1, "topics": [topic]}))
    row = next(row for row in data_of(api.get(path))["partitions"] if row["partition"] == 0)
    assert row["committed"] == 3
    data_of(api.delete(f"{path}/offsets/{topic}/0"))
    data_of(api.delete(path))
    assert error_of(api.get(path), 404)["reason"] == "GROUP_ID_NOT_FOUND"


def test_an_open_transaction_is_listed_and_aborted(api: httpx.Client, node: NodeProcess, topic: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=1)
    producer.flush()
    (row,) = data_of(api.get("/transactions", params={"open": "true", "filter": name}))["transactions"]
    assert row["partitions"] == [f"{topic}-1"]
    assert data_of(api.post(f"/transactions/{name}/abort", params={"dry_run": "true"}))["is_dry_run"] is True
    assert data_of(api.get(f"/transactions/{name}"))["is_open"] is True

    def is_aborted() -> bool:
        api.post(f"/transactions/{name}/abort")
        return data_of(api.get(f"/transactions/{name}"))["is_open"] is False

    eventually(is_aborted, 30, "the transaction stays open")
    (record,) = data_of(api.get(f"/topics/{topic}/records", params={"partition": 1}))["records"]
    assert (record["is_transactional"], record["is_aborted"]) == (True, True)


def test_storage_is_described_and_verified_as_an_operation(api: httpx.Client, topic: str) -> None:
    produce(api, topic, "x" * 1000)
    eventually(lambda: bool(data_of(api.get(f"/topics/{topic}/segments"))["segments"]), 60, "nothing was uploaded")
    state = data_of(api.get("/tier"))
    assert state["object_count"] >= 1
    assert state["requests"]["put"] + state["requests"]["put_if_absent"] >= 1
    (segment, *_) = data_of(api.get(f"/topics/{topic}/segments"))["segments"]
    keys = [row["key"] for row in data_of(api.get("/tier/objects", params={"page_size": 1000}))["objects"]]
    assert segment["key"] in keys
    assert data_of(api.get("/tier/exposure"))["exposed_bytes"] >= 0
    operation = data_of(api.post("/tier/verify"))

    def ended() -> bool:
        return bool(data_of(api.get(f"/operations/{operation['id']}"))["state"] != "running")

    eventually(ended, 60, "verify does not end")
    found = data_of(api.get(f"/operations/{operation['id']}"))
    assert found["state"] == "done", found
    assert found["result"]["findings"] == []
    assert found["done"] == found["total"] > 0
    assert data_of(api.post(f"/operations/{operation['id']}/cancel"))["state"] == "done"


def test_a_post_that_is_repeated_with_its_key_is_done_once(api: httpx.Client, topic: str) -> None:
    headers = {"idempotency-key": topic}
    body = {"value": {"data": "once"}, "partition": 0}
    answers: list[Any] = []  # Any: JSON

    def post() -> None:
        answers.append(data_of(api.post(f"/topics/{topic}/records", json=body, headers=headers)))

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [{"partition": 0, "offset": 0, "is_dry_run": False}] * 4
    assert data_of(api.get(f"/topics/{topic}"))["records"] == 1
    error_of(api.post(f"/topics/{topic}/records", json={"value": None}, headers=headers), 422)


def test_deleted_records_are_gone_and_topics_grow(api: httpx.Client, topic: str) -> None:
    for _ in range(3):
        produce(api, topic, "x", partition=0)
    assert data_of(api.post(f"/topics/{topic}/partitions/0/delete-records", json={"before": 2}))["log_start"] == 2
    error_of(api.post(f"/topics/{topic}/partitions/0/delete-records", json={"before": 9}), 400)
    assert data_of(api.post(f"/topics/{topic}/partitions", json={"count": 3}))["partitions"] == 3
    error_of(api.post(f"/topics/{topic}/partitions", json={"count": 3}), 400)
    rows = data_of(api.get(f"/topics/{topic}/partitions"))["partitions"]
    assert [(row["partition"], row["log_start"]) for row in rows] == [(0, 2), (1, 0), (2, 0)]
    assert data_of(api.get(f"/topics/{topic}/partitions/0/producers"))["producers"] == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nowhere", None, 404),
        ("PUT", "/topics", None, 405),
        ("GET", "/topics?colour=red", None, 400),
        ("GET", "/topics?page_size=many", None, 400),
        ("GET", "/topics?page_size=1&page_size=2", None, 400),
        ("POST", "/topics", b"{", 400),
        ("POST", "/topics", b"[]", 400),
        ("POST", "/topics", b'{"name": "x", "colour": 1}', 400),
        ("POST", "/topics", b'{"name": 5}', 400),
        ("POST", "/topics", b'{"name": "a b"}', 400),
        ("POST", "/topics", b"[" * 100_000, 400),
        ("GET", "/groups/%00%0d%0aSet-Cookie:%20x=1", None, 404),
    ],
)
def test_what_is_wrong_is_refused_in_the_envelope(
    api: httpx.Client, method: str, path: str, body: bytes | None, status: int
) -> None:
    answer = api.request(method, path, content=body)
    error = error_of(answer, status)
    assert error["message"]
    assert "set-cookie" not in answer.headers


def test_a_body_that_is_too_large_is_refused(api: httpx.Client, topic: str) -> None:
    error_of(api.post(f"/topics/{topic}/records", json={"value": {"data": "x" * (17 << 20)}}), 413)


def test_the_last_hours_numbers_can_be_drawn(api: httpx.Client) -> None:
    found = data_of(api.get("/metrics/history", params={"minutes": 5}))["series"]
    assert {"bytes_in", "bytes_out", "exposed_bytes", "late_ms", "request_dollars"} <= {each["name"] for each in found}
    assert all(len(each["times_ms"]) == len(each["values"]) for each in found)
    error_of(api.get("/metrics/history", params={"names": "weather"}), 404)


def test_without_its_pipeline_a_node_says_so(api: httpx.Client) -> None:
    assert data_of(api.get("/pipelines"))["state"] == "off"
    for verb in ("start", "stop"):
        assert data_of(api.post(f"/pipelines/{verb}", params={"dry_run": "true"}))["is_dry_run"] is True
        assert "pipeline.enable" in error_of(api.post(f"/pipelines/{verb}"), 409)["message"]
    assert error_of(api.get("/pipelines/orders/tables"), 404)["reason"] == "RESOURCE_NOT_FOUND"
    for verb in ("replay", "backfill"):
        error_of(api.post(f"/pipelines/orders/{verb}", json={}), 404)
        # The name becomes an argument of a process.
        error_of(api.post(f"/pipelines/--help/{verb}", json={}), 400)
