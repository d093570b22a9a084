"""Machines of a cluster that are killed, paused, cut off and robbed of their disks and stores, one round after another, under load.

`make chaos-cluster ROUNDS=n` runs all of it, n rounds of each fault, and keeps the gaps on a page. After every fault the cluster must be whole again, and at the end
everything that was acknowledged must be there, once, at its offset, in order, and a group must have seen it.
"""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.gap_page import noted
from tests.support.java_kafka import KafkaTools, RunningTool
from tests.support.kafka_clients import read_confluent
from tests.support.machines import Machine, Machines, three_machines
from tests.support.node import eventually
from tests.support.steady_producer import SteadyProducer
from tests.support.witness import Witness

from headrace.bench.maven import KAFKA_NEWEST

ROUNDS = int(os.environ.get("HEADRACE_TEST_ROUNDS", "3"))
PARTITIONS = 6
PATIENCE_S = 90.0
SETTLE_S = 3.0
AWAY_S = 5.0
"""How long a machine is paused or cut off: longer than a session."""

Fault = Callable[[Machines, Machine], None]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with three_machines(tmp_path_factory.mktemp("machines")) as found:
        yield found


def kill_broker(machines: Machines, machine: Machine) -> None:
    machine.kill(["broker"])
    machine.start(["broker"])


def stop_broker(machines: Machines, machine: Machine) -> None:
    assert machine.broker.stop() == 0
    machine.start(["broker"])


def pause_broker(machines: Machines, machine: Machine) -> None:
    machine.signal(signal.SIGSTOP, ["broker"])
    time.sleep(AWAY_S)
    machine.signal(signal.SIGCONT, ["broker"])


def kill_machine(machines: Machines, machine: Machine) -> None:
    """The active controller among them, now and then."""
    machine.kill()
    time.sleep(AWAY_S)
    machine.start()


def pause_machine(machines: Machines, machine: Machine) -> None:
    machine.signal(signal.SIGSTOP)
    time.sleep(AWAY_S)
    machine.signal(signal.SIGCONT)


def cut_machine(machines: Machines, machine: Machine) -> None:
    machine.cut()
    time.sleep(AWAY_S)
    machine.mend()


def break_ring(machines: Machines, machine: Machine) -> None:
    """Two of the three do not reach each other; both reach the third."""
    other = machines.all[machine.number % 3]
    machine.shut_out(other)
    other.shut_out(machine)
    time.sleep(AWAY_S)
    machine.let_in(other)
    other.let_in(machine)


def mute_machine(machines: Machines, machine: Machine) -> None:
    """It hears the others, and they do not hear it."""
    others = [each for each in machines.all if each is not machine]
    for other in others:
        machine.shut_out(other)
    time.sleep(AWAY_S)
    for other in others:
        machine.let_in(other)


def kill_etcd(machines: Machines, machine: Machine) -> None:
    machine.kill(["etcd"])
    time.sleep(AWAY_S)
    machine.start(["etcd"])


def pause_etcd(machines: Machines, machine: Machine) -> None:
    machine.signal(signal.SIGSTOP, ["etcd"])
    time.sleep(AWAY_S)
    machine.signal(signal.SIGCONT, ["etcd"])


def kill_controller(machines: Machines, machine: Machine) -> None:
    machine.kill(["controller"])
    time.sleep(AWAY_S)
    machine.start(["controller"])


def lose_majority(machines: Machines, machine: Machine) -> None:
    """Two members of the etcd: nothing can be committed until one is back."""
    others = [each for each in machines.all if each is not machine]
    for other in others:
        other.kill(["etcd"])
    time.sleep(2 * AWAY_S)
    for other in others:
        other.start(["etcd"])


def lose_disk(machines: Machines, machine: Machine) -> None:
    machine.kill(["broker"])
    machine.lose_disk()
    machine.start(["broker"])


def fill_disk(machines: Machines, machine: Machine) -> None:
    before = machine.broker.log_path.stat().st_size
    filler = machine.fill_disk()
    time.sleep(AWAY_S)
    filler.unlink()
    said = machine.broker.log_path.read_bytes()[before:]
    if b"this broker has failed and stops" in said:
        # Who watches over it starts it again, once it has handed over what it led.
        eventually(lambda: has_ended(machine), PATIENCE_S, "it does not end", machine.broker.log_text)
        machine.start(["broker"])


def has_ended(machine: Machine) -> bool:
    assert machine.broker.process is not None
    return machine.broker.process.poll() is not None


def roll(machines: Machines, machine: Machine) -> None:
    """A rolling restart: one broker after the other, each when the one before serves again."""
    for each in machines.all:
        stop_broker(machines, each)
        machines.await_back(each)


FAULTS: tuple[Fault, ...] = (
    kill_broker,
    stop_broker,
    pause_broker,
    kill_machine,
    pause_machine,
    cut_machine,
    break_ring,
    mute_machine,
    kill_etcd,
    pause_etcd,
    kill_controller,
    lose_majority,
    lose_disk,
    fill_disk,
    roll,
)
QUICK: tuple[Fault, ...] = (stop_broker, roll)
BAR_S = 5.0
STOP_BAR_S = 1.0
UNBARRED: tuple[Fault, ...] = (lose_majority,)
"""Nothing can be acknowledged for as long as it lasts."""


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost(machines: Machines, fault: Fault) -> None:
    topic = fault.__name__
    create(machines, topic)
    bar_s = None if fault in UNBARRED else STOP_BAR_S if fault in QUICK else BAR_S
    strike_again_and_again(machines, topic, fault, bar_s)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_stop_hands_a_thousand_partitions_over(machines: Machines) -> None:
    """Beside those that are written to: all of them get new leaders before the process ends."""
    topic, many = "stop_with_1000", "many"
    create(machines, topic)
    create(machines, many, partitions=1000)
    admin = AdminClient({"bootstrap.servers": machines.bootstrap})
    try:
        strike_again_and_again(machines, topic, stop_broker, STOP_BAR_S)
    finally:
        admin.delete_topics([many])[many].result(PATIENCE_S)


def strike_again_and_again(machines: Machines, topic: str, fault: Fault, bar_s: float | None) -> None:
    gaps = []
    with Witness(machines.bootstrap, topic) as witness:
        with SteadyProducer(machines.bootstrap, topic, partitions=PARTITIONS, pause_s=0.01) as producer:
            await_led(producer, 0.0)
            for number in range(ROUNDS):
                time.sleep(SETTLE_S)
                machine = busiest(machines, topic)
                begun = time.monotonic()
                fault(machines, machine)
                ended = time.monotonic()
                machines.await_back(machine)
                machines.check_alive()
                await_led(producer, ended)
                gaps.append(producer.gap_s(begun, time.monotonic()))
                print(f"{topic} {number + 1}: {gaps[-1]:.2f} s", flush=True)
        witness.await_all(len(producer.acknowledged))
    unknown = sum(offset is None for _, offset in producer.acknowledged.values())
    producer.check(PARTITIONS)
    witness.check(producer.acknowledged)
    told = noted(f"{topic}, three machines", gaps, bar_s=bar_s)
    print(f"{topic}: {told}; {len(producer.acknowledged)} records, {unknown} without an offset")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", [kill_broker])
def test_a_java_producer_loses_nothing(machines: Machines, fault: Fault, tmp_path: Path) -> None:
    """Kafka's own client: every number it was told of is there, once, where it was said to be."""
    settings = tmp_path / "producer.properties"
    # The tool would try nothing twice, unlike every producer with the settings that Kafka ships.
    settings.write_text("retries=2147483647\nenable.idempotence=true\n")
    topic = f"java_{fault.__name__}"
    create(machines, topic)
    tools = KafkaTools(KAFKA_NEWEST)
    where = ("--bootstrap-server", machines.bootstrap, "--topic", topic)
    options = ("--throughput", "100", "--acks", "-1", "--command-config", str(settings))
    with tools.running("kafka-verifiable-producer", *where, *options) as producer:
        for _ in range(ROUNDS):
            await_more(producer)
            machine = busiest(machines, topic)
            fault(machines, machine)
            machines.await_back(machine)
        await_more(producer)
    said = [json.loads(line) for line in producer.lines if line.startswith("{")]
    promised = {
        each["value"].encode(): (each["partition"], each["offset"])
        for each in said
        if each["name"] == "producer_send_success"
    }
    assert not [each for each in said if each["name"] == "producer_send_error"]
    seen = read_confluent(machines.bootstrap, topic, range(PARTITIONS), len(promised))
    found = [(each.record.value, (each.record.partition, each.offset)) for each in seen]
    assert len(found) == len({value for value, _ in found}), "doubled"
    # The last ones may have been stored while the client was ended, before it was told.
    assert {value: place for value, place in found if value in promised} == promised
    print(f"{topic}: {len(promised)} records")


def await_more(producer: RunningTool) -> None:
    told = len(producer.lines)
    producer.wait_for(lambda lines: len(lines) > told + 200)


def await_led(producer: SteadyProducer, since: float) -> None:
    eventually(lambda: producer.is_fresh(since), PATIENCE_S, "a partition acknowledges nothing")


def busiest(machines: Machines, topic: str) -> Machine:
    """Who leads most of its partitions: the fault of another one would be noticed by few."""
    found = AdminClient({"bootstrap.servers": machines.bootstrap}).list_topics(topic, timeout=PATIENCE_S)
    led = Counter(
        found.brokers[each.leader].host for each in found.topics[topic].partitions.values() if each.leader > 0
    )
    return max(machines.all, key=lambda machine: led[machine.address])


def create(machines: Machines, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": machines.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_S)
