"""What access costs: rules on a warm connection, TLS beside Apache Kafka's, and what a good client notices of logins and strangers.

`make access-bars` runs it and writes docs/benchmarks/access.md. Whatever is compared takes turns, so that a noisy minute hurts all of it.
HEADRACE_TEST_SECONDS, HEADRACE_TEST_ROUNDS and HEADRACE_TEST_MIB make it shorter; a bar counts only where they are as they are.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from tests.support.canary import Canary
from tests.support.certificates import Authority
from tests.support.login_load import FLOOD, LOGINS, PASSWORD, USER, LoginLoad
from tests.support.node import NodeProcess, eventually, running_node

from headrace.bench.case import CpuMeter, settle
from headrace.bench.errors import RivalUnavailable
from headrace.bench.process import read_usage
from headrace.bench.rivals import ApacheKafka, Broker, Headrace
from headrace.bench.scale import FULL, GIB, MIB
from headrace.bench.topics import create_topics, delete_topics, fresh_name
from headrace.bench.workloads import WORKLOADS

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

SECONDS: Final = float(os.environ.get("HEADRACE_TEST_SECONDS", "10"))
ROUNDS: Final = int(os.environ.get("HEADRACE_TEST_ROUNDS", "5"))
SIZE_MIB: Final = int(os.environ.get("HEADRACE_TEST_MIB", "1024"))
REPORT: Final = os.environ.get("HEADRACE_TEST_REPORT")
IS_WHOLE: Final = (SECONDS, ROUNDS, SIZE_MIB) == (10, 5, 1024)
RULES_MAX: Final = 1.03
TLS_MAX: Final = 1.0
CANARY_MAX: Final = 2.0
LOGIN_CPU_MS_MAX: Final = 20.0
_RECORD: Final = 1024
_PARTITIONS: Final = 4


class Page:
    """Rows of what was found, printed as they come and written at the end."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def bar(self, what: str, found: str, ratio: float, limit: float) -> None:
        is_met = ratio <= limit
        self.rows.append(f"| {what} | {found} | {ratio:.2f} | {limit:g} | {'yes' if is_met else 'no'} |")
        print(f"[load {os.getloadavg()[0]:.1f}] {what}: {found}; {ratio:.2f}, at most {limit:g}", flush=True)
        if IS_WHOLE:
            assert is_met, f"{what}: {ratio:.3f}, at most {limit:g}"

    def write(self, path: Path) -> None:
        when = datetime.now(UTC).isoformat(timespec="minutes")
        path.write_text(
            "# What access costs\n\nWritten by `make access-bars`. "
            f"{ROUNDS} rounds that take turns, windows of {SECONDS:g} s, {SIZE_MIB} MiB through TLS, {os.cpu_count()} cores, "
            f"load {os.getloadavg()[0]:.1f} at the end, {when}. A ratio is the median of the rounds'.\n\n"
            "| what | found | ratio | at most | met |\n|---|---|---|---|---|\n" + "\n".join(self.rows) + "\n"
        )


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    made = Page()
    yield made
    if REPORT and made.rows:
        made.write(Path(REPORT))


def headrace(data_dir: Path, *words: str, said: str = "") -> None:
    command = [sys.executable, "-m", "headrace", *words, "--local", str(data_dir)]
    subprocess.run(command, check=True, capture_output=True, text=True, input=said)


# -- rules


def test_rules_on_a_warm_connection(tmp_path: Path, page: Page) -> None:
    rules = ("security.authorization.enable=true", "listener.kafka.principal=User:bench")
    scale = msgspec.structs.replace(FULL, request_seconds=SECONDS, warm_up_seconds=min(SECONDS / 2, 5.0))
    with ExitStack() as stack:
        without = started(stack, Headrace(), tmp_path / "without")
        asked = started(stack, Headrace(name="headrace with rules", settings=rules), tmp_path / "with")
        headrace(asked.directory / "data", "acl", "allow", "bench", "all", "*", "--group", "*")
        for case in WORKLOADS["w8"].cases(scale):
            ratios, costs = [], []
            for number in range(ROUNDS + 1):
                # Whoever comes second finds a warmer machine, or a busier disk: they take turns at that, too.
                order = (without, asked) if number % 2 else (asked, without)
                found = {broker.name: case.measure(broker, scale)["request_cpu"] for broker in order}
                if number:
                    ratios.append(found[asked.name] / found[without.name])
                    costs.append((found[without.name], found[asked.name]))
            off, on = (statistics.median(each) for each in zip(*costs, strict=True))
            words = f"{off:.1f} us of CPU a request without, {on:.1f} us with"
            page.bar(f"W8 {case.name}, rules asked", words, statistics.median(ratios), RULES_MAX)


def started(stack: ExitStack, rival: Headrace | ApacheKafka, directory: Path) -> Broker:
    broker = rival.launch(directory)
    stack.callback(broker.close)
    return broker


# -- TLS


def test_tls_beside_apache_kafka(tmp_path: Path, page: Page) -> None:
    authority = Authority(tmp_path / "certificates")
    certificate, key = authority.issue("server")
    ours = Headrace(
        settings=(
            "listener.tls.door=kafka",
            "listener.tls.listen=127.0.0.1:0",
            f"listener.tls.tls.certificate={certificate}",
            f"listener.tls.tls.key={key}",
        )
    )
    both_in_one = tmp_path / "kafka.pem"
    both_in_one.write_bytes(key.read_bytes() + certificate.read_bytes())
    theirs = ApacheKafka(tls_keystore=str(both_in_one))
    with ExitStack() as stack:
        try:
            kafka = started(stack, theirs, tmp_path / "kafka")
        except RivalUnavailable as error:
            pytest.skip(f"Apache Kafka cannot be run here: {error}")
        brokers = [started(stack, ours, tmp_path / "headrace"), kafka]
        found: dict[str, list[dict[str, float]]] = {"produce": [], "fetch": []}
        for number in range(ROUNDS + 1):
            costs = {broker.name: tls_costs(broker, authority) for broker in brokers}
            for verb, rows in found.items():
                if number:
                    rows.append({name: each[verb] for name, each in costs.items()})
    for verb, rows in found.items():
        our, their = (statistics.median(row[broker.name] for row in rows) for broker in brokers)
        ratio = statistics.median(row[brokers[0].name] / row[brokers[1].name] for row in rows)
        page.bar(f"TLS, {verb}", f"{our:.2f} s of CPU a GiB, Apache Kafka {their:.2f} s", ratio, TLS_MAX)


def tls_costs(broker: Broker, authority: Authority) -> dict[str, float]:
    """Seconds of the broker's CPU for each GiB, with the same client."""
    settings = {
        "bootstrap.servers": broker.address_of("tls"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.certificate),
        "ssl.endpoint.identification.algorithm": "none",
    }
    topic = fresh_name("tls")
    create_topics(broker.bootstrap, [topic], partitions=_PARTITIONS)
    try:
        settle(broker)
        meter = CpuMeter(broker)
        meter.begin()
        write(settings, topic)
        produced = meter.seconds_when_quiet()
        meter.begin()
        read(settings, topic)
        fetched = meter.seconds()
    finally:
        delete_topics(broker.bootstrap, [topic])
    gibibytes = SIZE_MIB * MIB / GIB
    return {"produce": produced / gibibytes, "fetch": fetched / gibibytes}


def write(settings: Mapping[str, str], topic: str) -> None:
    producer = Producer(
        {
            **settings,
            "batch.size": 128 * 1024,
            "linger.ms": 5,
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 200_000,
        }
    )
    chunk = [{"value": os.urandom(_RECORD)} for _ in range(128)]
    for index in range(SIZE_MIB * MIB // _RECORD // len(chunk)):
        assert producer.produce_batch(topic, chunk, partition=index % _PARTITIONS) == len(chunk)
        while len(producer) > 60_000:
            producer.poll(0.005)
    assert producer.flush(120) == 0


def read(settings: Mapping[str, str], topic: str) -> None:
    consumer = Consumer({**settings, "group.id": topic, "enable.auto.commit": False, "fetch.max.bytes": 50 << 20})
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(_PARTITIONS)])
    left = SIZE_MIB * MIB // _RECORD
    while left > 0:
        messages = consumer.consume(5_000, 30)
        assert messages, f"{left} records do not come"
        assert not any(message.error() for message in messages)
        left -= len(messages)
    consumer.close()


# -- logins and strangers


@pytest.mark.parametrize("kind", [LOGINS, FLOOD])
def test_what_a_good_client_notices(tmp_path: Path, page: Page, kind: str) -> None:
    """Held against the same load on another node: what it takes from the machine's cores is not the node's doing."""
    settings = {
        "listener.login.door": "kafka",
        "listener.login.listen": "127.0.0.1:0",
        "listener.login.sasl": "SCRAM-SHA-256",
    }
    with ExitStack() as stack:
        node, other = (stack.enter_context(running_node(tmp_path / name, settings)) for name in ("own", "other"))
        for each in (node, other):
            headrace(each.data_dir, "user", "create", USER, said=f"{PASSWORD}\n")
        own_load, other_load = (stack.enter_context(LoginLoad(kind, each.endpoints["login"])) for each in (node, other))
        canary = stack.enter_context(Canary(node.kafka))
        ways: dict[str, Callable[[], float]] = {
            "quiet": quietly,
            "another node": lambda: cpu_ms_each(other, other_load),
            "this node": lambda: cpu_ms_each(node, own_load),
        }
        found: dict[str, list[float]] = {way: [] for way in ways}
        costs = []
        for _ in range(ROUNDS):
            for way, work in ways.items():
                begun = len(canary.times_s)
                cost = work()
                eventually(lambda begun=begun: len(canary.times_s) > begun, 60, "the canary fell silent")  # type: ignore[misc]
                times = sorted(canary.times_s[begun:])
                found[way].append(times[int(len(times) * 0.99)] * 1000)
                costs += [cost] if way == "this node" else []
    medians = {way: statistics.median(each) for way, each in found.items()}
    words = ", ".join(f"{way} {each:.1f} ms" for way, each in medians.items())
    ratio = medians["this node"] / max(medians["quiet"], medians["another node"])
    page.bar(f"a good client's p99 beside {kind}", words, ratio, CANARY_MAX)
    if kind == LOGINS:
        cost = statistics.median(costs)
        page.bar("a SCRAM login", f"{cost:.2f} ms of the node's CPU", cost / LOGIN_CPU_MS_MAX, 1.0)


def quietly() -> float:
    time.sleep(SECONDS)
    return 0.0


def cpu_ms_each(node: NodeProcess, load: LoginLoad) -> float:
    """Milliseconds of the node's CPU for each connection; the canary's share is in it."""
    before = read_usage(node.pid).cpu_seconds
    count = load.run(SECONDS)
    return (read_usage(node.pid).cpu_seconds - before) / max(count, 1) * 1000
