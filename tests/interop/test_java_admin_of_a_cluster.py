"""Apache Kafka's Java AdminClient against three brokers: whichever it is told of, it sees and changes the whole cluster.

It sends what changes metadata to the broker that calls itself the controller, what concerns records to each leader, and what concerns
groups and transactions to each coordinator. So every answer here has come from several brokers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from tests.support.cluster import ClusterProcesses, cluster_processes
from tests.support.java_admin import JavaAdmin, JavaAdminError, java_admin
from tests.support.node import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("java_admin_of_a_cluster")]

PATIENCE_S = 90.0
NAMES = ("a", "b", "c")
WORDS = tuple(f"of-{number}" for number in range(9))
"""Of groups and of transactional ids: with three partitions of each internal topic, every broker looks after some."""
SETTINGS = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}
PARTITIONS = 6


class Site:
    """A cluster, and an AdminClient for each of its brokers that knows no other at first."""

    def __init__(self, cluster: ClusterProcesses, admin: JavaAdmin) -> None:
        self._admin = admin
        self.addresses = {name: cluster.brokers[name].kafka for name in NAMES}
        self.bootstrap = ",".join(self.addresses.values())

    def ask(self, name: str, verb: str, *arguments: object) -> Any:  # Any: each verb answers in its own shape
        return self._admin.ask(self.addresses[name], verb, *arguments)

    def await_answer(self, expected: object, name: str, verb: str, *arguments: object) -> None:
        """A broker hears of a change by its watch, a moment after the one that was asked for it."""
        answers: list[object] = []

        def is_given() -> bool:
            try:
                answers.append(self.ask(name, verb, *arguments))
            except JavaAdminError as error:
                answers.append(error.name)
            return answers[-1] == expected

        eventually(is_given, PATIENCE_S, f"{verb} {arguments} at {name} is not {expected}", lambda: str(answers[-1:]))

    def create(self, topic: str) -> None:
        self.ask("a", "create", topic, PARTITIONS, "durability", "object")
        for name in NAMES:
            self.await_leaders(name, topic, PARTITIONS)

    def await_leaders(self, name: str, topic: str, count: int) -> None:
        """Until this broker knows of so many partitions, each with a leader."""

        def is_led() -> bool:
            try:
                leaders = self.leaders(name, topic)
            except JavaAdminError:
                return False
            return len(leaders) == count and -1 not in leaders

        eventually(is_led, PATIENCE_S, f"{topic} has no {count} partitions that are led, says {name}")

    def leaders(self, name: str, topic: str) -> list[int]:
        return [each["leader"] for each in self.ask(name, "topic", topic)["partitions"]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for the file: every test has topics, groups and transactions of its own, and nothing is killed."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    with java_admin(directory) as admin, cluster_processes(directory) as cluster:
        cluster.start_controllers()
        for name in NAMES:
            cluster.start_broker(name, {**SETTINGS, "rack.id": f"rack-{name}"})
        yield Site(cluster, admin)


def test_every_broker_describes_the_same_cluster(site: Site) -> None:
    described = [site.ask(name, "cluster") for name in NAMES]
    for each in described:
        assert each["id"] == described[0]["id"]
        assert each["controller"] in {node["id"] for node in each["nodes"]}
        assert {node["address"]: node["rack"] for node in each["nodes"]} == {
            address: f"rack-{name}" for name, address in site.addresses.items()
        }


@pytest.mark.parametrize("at", NAMES)
def test_a_topic_is_created_changed_and_deleted_at_any_broker(site: Site, at: str) -> None:
    topic, others = f"changed-at-{at}", [name for name in NAMES if name != at]
    topic_id = site.ask(at, "create", topic, PARTITIONS, "durability", "object")
    with pytest.raises(JavaAdminError, match="TopicExistsException"):
        site.ask(at, "create", topic, PARTITIONS, "durability", "object")
    for name in NAMES:
        site.await_leaders(name, topic, PARTITIONS)
        assert topic in site.ask(name, "topics")
        described = site.ask(name, "topic", topic)
        assert described["id"] == topic_id
        # As many brokers lead it as there are, and each record is on the one that leads.
        assert {each["leader"] for each in described["partitions"]} == {1, 2, 3}
        assert all(each["replicas"] == each["isr"] == [each["leader"]] for each in described["partitions"])

    site.ask(at, "alter-config", topic, "retention.ms", "123456")
    site.ask(at, "add-partitions", topic, PARTITIONS + 3)
    for name in others:
        site.await_answer("123456", name, "config", topic, "retention.ms")
        site.await_leaders(name, topic, PARTITIONS + 3)

    site.ask(at, "delete", topic)
    for name in NAMES:
        site.await_answer("UnknownTopicOrPartitionException", name, "topic", topic)
        assert topic not in site.ask(name, "topics")


def test_offsets_are_listed_and_records_deleted_at_every_leader(site: Site) -> None:
    site.create("records")
    assert set(site.leaders("a", "records")) == {1, 2, 3}
    producer = Producer({"bootstrap.servers": site.bootstrap})
    for number in range(PARTITIONS * 10):
        producer.produce("records", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0
    for partition in range(PARTITIONS):
        assert [site.ask(name, "offset", "records", partition, "latest") for name in NAMES] == [10] * 3
        cut = partition + 1
        asked, *others = NAMES[partition % 3 :] + NAMES[: partition % 3]
        assert site.ask(asked, "delete-records", "records", partition, cut) == cut
        assert [site.ask(name, "offset", "records", partition, "earliest") for name in others] == [cut] * 2


def test_groups_of_all_coordinators_are_listed_described_moved_and_deleted(site: Site) -> None:
    site.create("read")
    for number, group in enumerate(WORDS):
        site.ask("a", "commit", group, "read", number % PARTITIONS, number)
    for name in NAMES:
        assert sorted(site.ask(name, "groups")) == [*WORDS]
    described = [site.ask("b", "group", group) for group in WORDS]
    assert {each["coordinator"] for each in described} == {1, 2, 3}
    assert {(each["state"], each["members"]) for each in described} == {("Empty", 0)}
    for number, group in enumerate(WORDS):
        assert site.ask("c", "committed", group) == {f"read-{number % PARTITIONS}": number}

    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": WORDS[0], "enable.auto.commit": False})
    try:
        consumer.subscribe(["read"])

        def is_stable() -> bool:
            consumer.poll(0.1)
            return bool(site.ask("b", "group", WORDS[0])["state"] == "Stable")

        eventually(is_stable, PATIENCE_S, "the group is not stable")
        assert site.ask("c", "group", WORDS[0])["members"] == 1
        with pytest.raises(JavaAdminError, match="GroupNotEmptyException"):
            site.ask("a", "delete-group", WORDS[0])
    finally:
        consumer.close()

    for group in WORDS:
        site.ask("c", "delete-group", group)
    for name in NAMES:
        assert site.ask(name, "groups") == []


def test_transactions_of_all_coordinators_are_listed_and_described(site: Site) -> None:
    site.create("written")
    assert set(site.leaders("a", "written")) == {1, 2, 3}
    producers = {word: Producer({"bootstrap.servers": site.bootstrap, "transactional.id": word}) for word in WORDS}
    for producer in producers.values():
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("written", b"x", partition=partition)
        assert producer.flush(PATIENCE_S) == 0
    for name in NAMES:
        assert site.ask(name, "transactions") == dict.fromkeys(WORDS, "Ongoing")
    described = [site.ask("b", "transaction", word) for word in WORDS]
    assert {each["coordinator"] for each in described} == {1, 2, 3}
    assert all(each["partitions"] == [f"written-{index}" for index in range(PARTITIONS)] for each in described)

    for number, producer in enumerate(producers.values()):
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    ended = {word: "CompleteAbort" if number % 2 else "CompleteCommit" for number, word in enumerate(WORDS)}
    for name in NAMES:
        site.await_answer(ended, name, "transactions")
