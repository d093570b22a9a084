"""Real clients through a topic with a Wasm module: what they write is what the module made of it, in order, once."""

import base64
import json
import subprocess
import sys
import threading
import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from tests.support import wasm
from tests.support.node import NodeProcess, eventually
from tests.support.raw_kafka import Producer as RawProducer
from tests.support.raw_kafka import RawKafka, batch_of
from tests.support.wasm_api import Api, ask_by_grpc


@pytest.fixture
def topic(name: str, node: NodeProcess) -> str:
    """Of one partition, so that order is seen."""
    with RawKafka(node.kafka) as client:
        client.create_topic(name, 1)
    return name


@pytest.fixture
def api(node: NodeProcess) -> Api:
    return Api(node)


def produce(node: NodeProcess, topic: str, values: list[bytes], **config: object) -> list[KafkaError | None]:
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 5, **config})
    for value in values:
        producer.produce(topic, value, key=b"k", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(60) == 0
    return outcomes


def consume(node: NodeProcess, topic: str, count: int, **config: object) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": f"g-{topic}-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            **config,
        }
    )
    consumer.subscribe([topic])
    found: list[Message] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None
            found.append(message)
    consumer.close()
    return found


@pytest.mark.requirement("R3.75", "R3.76", "R3.77", "R3.79", "R3.91", "R3.92", "R3.93")
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_what_consumers_read_is_what_the_module_made(node: NodeProcess, topic: str, api: Api, codec: str) -> None:
    module = api.upload(topic, wasm.UPPER)
    assert api.assign(topic, module)["module"] == module
    assert [each["topics"] for each in api.ask("GET", "/wasm/modules")["modules"] if each["id"] == module] == [[topic]]
    sent = [b"value %04d" % number for number in range(2000)]
    assert produce(node, topic, sent, **{"compression.type": codec, "enable.idempotence": True}) == [None] * 2000
    assert [each.value() for each in consume(node, topic, 2000)] == [each.upper() for each in sent]


def test_filtered_records_leave_unused_offsets(node: NodeProcess, topic: str, api: Api) -> None:
    api.assign(topic, api.upload(topic, wasm.DROP_X))
    assert produce(node, topic, [b"a", b"x", b"b", b"x", b"x", b"c"]) == [None] * 6
    found = consume(node, topic, 3)
    assert [(each.offset(), each.value()) for each in found] == [(0, b"a"), (2, b"b"), (5, b"c")]
    with RawKafka(node.kafka) as client:
        assert client.produce(topic, 0, batch_of([b"x", b"x"])).base_offset == 6
        assert client.produce(topic, 0, batch_of([b"d"])).base_offset == 8
    assert [each.offset() for each in consume(node, topic, 4)] == [0, 2, 5, 8]


def test_a_trap_fails_the_produce_with_its_reason_and_changes_nothing(node: NodeProcess, topic: str, api: Api) -> None:
    api.assign(topic, api.upload(topic, wasm.TRAP_ON_X))
    with RawKafka(node.kafka) as client:
        refused = client.produce(topic, 0, batch_of([b"a", b"x"]))
        assert refused.error_code == KafkaError.INVALID_RECORD
        assert "record 1 of the batch: trapped" in (refused.error_message or "")
        assert client.produce(topic, 0, batch_of([b"b"])).base_offset == 0
    assert [each.value() for each in consume(node, topic, 1)] == [b"b"]


def test_dead_letters_go_to_their_topic_and_the_producer_goes_on(node: NodeProcess, topic: str, api: Api) -> None:
    dead = f"{topic}-dead"
    api.ask("POST", "/topics", {"name": dead})
    api.assign(topic, api.upload(topic, wasm.TRAP_ON_X), dead_letter_topic=dead)
    for value in (b"a", b"x", b"b"):
        assert produce(node, topic, [value], **{"enable.idempotence": True}) == [None]
    assert [(each.offset(), each.value()) for each in consume(node, topic, 2)] == [(0, b"a"), (2, b"b")]
    (letter,) = consume(node, dead, 1)
    headers = dict(letter.headers())
    assert (letter.key(), letter.value(), headers["headrace.dead_letter.topic"]) == (b"k", b"x", topic.encode())
    assert b"unreachable" in headers["headrace.dead_letter.reason"]


def test_a_repeated_batch_is_known_before_the_module_sees_it(node: NodeProcess, topic: str, api: Api) -> None:
    api.assign(topic, api.upload(topic, wasm.UPPER))
    with RawKafka(node.kafka) as client:
        batches = [batch_of([b"a%d" % number], producer=RawProducer(4711, 0), sequence=number) for number in range(3)]
        assert [client.produce(topic, 0, each).base_offset for each in batches] == [0, 1, 2]
        # From now on whatever reaches the module is refused.
        api.assign(topic, api.upload(topic, wasm.HOSTILE["traps"][0]))
        assert [client.produce(topic, 0, each).base_offset for each in batches] == [0, 1, 2]
        news = batch_of([b"a3"], producer=RawProducer(4711, 0), sequence=3)
        assert client.produce(topic, 0, news).error_code == KafkaError.INVALID_RECORD
        beyond = batch_of([b"a4"], producer=RawProducer(4711, 0), sequence=4)
        assert client.produce(topic, 0, beyond).error_code == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [each.value() for each in consume(node, topic, 3)] == [b"A0", b"A1", b"A2"]


def test_transactions_commit_and_abort_what_the_module_made(node: NodeProcess, topic: str, api: Api) -> None:
    api.assign(topic, api.upload(topic, wasm.UPPER))
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": topic})
    producer.init_transactions(60)
    for value, is_kept in ((b"one", True), (b"two", False), (b"three", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        if is_kept:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    found = consume(node, topic, 2, **{"isolation.level": "read_committed"})
    assert [each.value() for each in found] == [b"ONE", b"THREE"]


def test_switching_modules_under_load_mixes_neither_order_nor_batches(node: NodeProcess, topic: str, api: Api) -> None:
    upper, same = api.upload(f"{topic}-u", wasm.UPPER), api.upload(f"{topic}-s", wasm.IDENTITY)
    stopping = threading.Event()

    def switch() -> None:
        while not stopping.is_set():
            for module in (upper, same, ""):
                api.assign(topic, module)

    switcher = threading.Thread(target=switch)
    switcher.start()
    sent = [b"v%06d" % number for number in range(20_000)]
    try:
        outcomes = produce(node, topic, sent, **{"enable.idempotence": True, "batch.num.messages": 50})
    finally:
        stopping.set()
        switcher.join(60)
    assert outcomes == [None] * len(sent)
    assert [each.value().lower() for each in consume(node, topic, len(sent))] == sent


def test_a_module_that_a_topic_has_is_not_removed(topic: str, api: Api) -> None:
    module = api.upload(topic, wasm.UPPER)
    assert api.upload(topic, wasm.UPPER) == module, "the same bytes are the same version"
    second = api.upload(topic, wasm.CUT)
    assert (module, second) == (f"{topic}_v1", f"{topic}_v2")
    api.assign(topic, module)
    with pytest.raises(AssertionError, match=f"assigned to {topic}"):
        api.ask("DELETE", f"/wasm/modules/{module}")
    api.assign(topic, second)
    api.ask("DELETE", f"/wasm/modules/{module}")
    with pytest.raises(AssertionError, match="no Wasm module"):
        api.assign(topic, module)
    assert api.upload(topic, wasm.UPPER) == f"{topic}_v3", "a version is never given twice"


def test_what_a_module_logs_is_kept(node: NodeProcess, topic: str, api: Api) -> None:
    api.assign(topic, api.upload(topic, wasm.LOGS_SIZE))
    assert produce(node, topic, [b"a", b"b"]) == [None] * 2

    def lines() -> list[str]:
        try:
            found = api.ask("GET", "/topics/__headrace_wasm_logs/records?limit=100")["records"]
        except AssertionError:
            return []
        logged = [json.loads(each["value"]["data"]) for each in found]
        return [each["line"] for each in logged if each["topic"] == topic]

    eventually(lambda: lines() == ["hello", "hello"], 30, "nothing was logged", lambda: str(lines()))


def test_kafkas_own_tools_assign_a_module_too(node: NodeProcess, topic: str, api: Api) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    module = api.upload(topic, wasm.UPPER)
    admin = AdminClient({"bootstrap.servers": node.kafka})

    def set_module(value: str) -> None:
        entry = ConfigEntry("wasm.module.id", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("TOPIC", topic, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)

    set_module(module)
    assert produce(node, topic, [b"a"]) == [None]
    with pytest.raises(KafkaException, match="no Wasm module"):
        set_module("nobody_v1")
    assert [each.value() for each in consume(node, topic, 1)] == [b"A"]


def headrace(*arguments: str, text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments], input=text, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.requirement("R3.77")
def test_every_door_goes_through_the_module(node: NodeProcess, topic: str, api: Api) -> None:
    api.assign(topic, api.upload(topic, wasm.UPPER))
    produce(node, topic, [b"kafka"])
    for door in ("rustlog", "mlog"):
        headrace("produce", topic, "--door", door, "--address", node.endpoints[door], text=f"{door}\n")
    headrace("produce", topic, "--door", "mlog", "--address", node.endpoints["mlog"], "--acks", "0", text="at once\n")
    api.ask("POST", f"/topics/{topic}/records", {"value": {"data": "rest"}})
    found = [each.value() for each in consume(node, topic, 5)]
    assert found == [b"KAFKA", b"RUSTLOG", b"MLOG", b"AT ONCE", b"REST"]
    # Logjam's topics have names of its own.
    api.ask("POST", "/topics", {"name": "logjam-shop-upper"})
    api.assign("logjam-shop-upper", f"{topic}_v1")
    logjam = ("--door", "logjam", "--address", node.endpoints["logjam_router"], "--key-separator", "|")
    headrace("produce", "shop-upper", *logjam, text='logs.cart|{"n":"a"}\n')
    assert [each.value() for each in consume(node, "logjam-shop-upper", 1)] == [b'{"N":"A"}']


def test_the_json_doors_say_what_the_module_said(node: NodeProcess, topic: str, api: Api) -> None:
    api.assign(topic, api.upload(topic, wasm.TRAP_ON_X))
    for door in ("rustlog", "mlog"):
        with pytest.raises(AssertionError, match="record 0 of the batch: trapped"):
            headrace("produce", topic, "--door", door, "--address", node.endpoints[door], text="x\n")
    with pytest.raises(AssertionError, match="record 0 of the batch: trapped"):
        api.ask("POST", f"/topics/{topic}/records", {"value": {"data": "x"}})
    with RawKafka(node.kafka) as client:
        assert client.produce(topic, 0, batch_of([b"a"])).base_offset == 0


def test_the_same_by_grpc(node: NodeProcess, topic: str) -> None:
    content = base64.b64encode(wasm.UPPER).decode()
    uploaded = ask_by_grpc(node, "UploadWasmModule", {"name": topic, "content": content})
    assert uploaded["module"]["id"] == f"{topic}_v1"
    assert ask_by_grpc(node, "AssignWasmToTopic", {"name": topic, "module": f"{topic}_v1"})["module"] == f"{topic}_v1"
    modules = ask_by_grpc(node, "ListWasmModules", {"page_size": 100})["modules"]
    assert [each["topics"] for each in modules if each["id"] == f"{topic}_v1"] == [[topic]]
    assert produce(node, topic, [b"a"]) == [None]
    assert [each.value() for each in consume(node, topic, 1)] == [b"A"]
