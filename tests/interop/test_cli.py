"""The command line against a running node, as an operator types it."""

import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from confluent_kafka import Producer
from tests.support.node import START_SECONDS_MAX, STOP_SECONDS_MAX, NodeProcess, eventually
from tests.support.raw_kafka import RawKafka, batch_of, lying_batch

NODE_SETTINGS = {"group.initial.rebalance.delay.ms": 0}


class Shell:
    """Runs `headrace ...` against one node."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node

    def run(self, *arguments: str, stdin: str = "", status: int = 0) -> str:
        done = self.call(*arguments, stdin=stdin, status=status)
        return done.stdout if status == 0 else done.stderr

    def call(self, *arguments: str, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={"HEADRACE_BOOTSTRAP": self.node.endpoints["kafka"]},
        )
        assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "headrace", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"HEADRACE_BOOTSTRAP": self.node.endpoints["kafka"]},
        )

    def group_state(self, group: str) -> str | None:
        return next((each["state"] for each in self.json("group", "list") if each["group"] == group), None)

    def json(self, *arguments: str, stdin: str = "") -> Any:  # Any: whatever the command answers
        return json.loads(self.run(*arguments, "--json", stdin=stdin))


def unread(pipe: IO[str] | None) -> int:
    """Bytes that nobody has taken out of `pipe` yet."""
    assert pipe is not None
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.fixture
def shell(node: NodeProcess) -> Shell:
    return Shell(node)


@pytest.mark.requirement("X0.3")
def test_a_topic_from_creation_to_deletion(shell: Shell) -> None:
    assert shell.json("topic", "create", "life", "--partitions", "2") == {"topic": "life", "is_created": True}
    assert "already exists" in shell.run("topic", "create", "life", status=1)
    assert shell.run("topic", "create", "life", "--if-not-exists") == "life exists\n"
    listed = {topic["name"]: topic["partitions"] for topic in shell.json("topic", "list")}
    assert listed["life"] == 2

    shell.run("topic", "alter", "life", "--partitions", "3", "--set", "retention.ms=86400000")
    state = shell.json("topic", "describe", "life")
    assert state["config"] == {"retention.ms": "86400000"}
    assert [partition["partition"] for partition in state["partitions"]] == [0, 1, 2]
    shell.run("topic", "alter", "life", "--unset", "retention.ms")
    assert shell.json("topic", "describe", "life")["config"] == {}

    only = shell.json("topic", "describe", "life", "--partition", "1")["partitions"]
    assert [(partition["partition"], partition["log_start"], partition["end"]) for partition in only] == [(1, 0, 0)]

    shell.run("topic", "delete", "life")
    assert "life" not in {topic["name"] for topic in shell.json("topic", "list")}
    assert "no topic 'life'" in shell.run("topic", "delete", "life", status=1)
    shell.run("topic", "delete", "life", "--if-exists")


def test_a_topic_config_nobody_knows_is_named(shell: Shell) -> None:
    said = shell.run("topic", "create", "odd", "--config", "retention.msec=1", status=1)
    assert said == "headrace: unknown topic config 'retention.msec'; did you mean retention.ms?\n"
    shell.run("topic", "create", "even", "--config", "retention.ms=1000")
    said = shell.run("topic", "alter", "even", "--unset", "retention.ms", "--unset", "max.mesage.bytes", status=1)
    assert "'max.mesage.bytes'; did you mean max.message.bytes?" in said
    assert shell.json("topic", "describe", "even")["config"] == {"retention.ms": "1000"}
    assert "no topic 'never'" in shell.run("topic", "alter", "never", "--unset", "retention.ms", status=1)


def test_what_was_produced_is_consumed(shell: Shell) -> None:
    shell.run("topic", "create", "orders", "--partitions", "1")
    report = shell.json(
        *("produce", "orders", "--key-separator", ":", "--header", "source=cli", "--codec", "zstd"),
        stdin="alice:coffee\nbob:tea\nplain\n",
    )
    assert report == {"topic": "orders", "records": 3, "last_offsets": {"0": 2}}

    read = ("consume", "orders", "--no-follow")
    assert shell.run(*read, "--from-beginning") == "coffee\ntea\nplain\n"
    assert shell.run(*read, "--offset", "1", "--format", "{offset} {key}") == "1 bob\n2 \n"
    assert shell.run(*read, "--from-beginning", "--max", "1", "--format", "key-value") == "alice\tcoffee\n"
    assert shell.run(*read) == "", "what comes next is nothing yet"
    record = json.loads(shell.run(*read, "--offset", "2", "--format", "json"))
    assert (record["key"], record["value"], record["headers"]) == (None, "plain", [["source", "cli"]])
    assert "not 7" in shell.run(*read, "--partition", "7", status=1)

    unasked = shell.json("produce", "orders", "--acks", "0", stdin="water\n")
    assert unasked == {"topic": "orders", "records": 1, "last_offsets": {}}, "nobody was asked for an offset"


def test_a_group_goes_on_where_it_stopped(shell: Shell) -> None:
    shell.run("topic", "create", "split", "--partitions", "4")
    for partition in range(4):
        shell.run(
            "produce", "split", "--partition", str(partition), stdin="".join(f"{partition}-{n}\n" for n in range(5))
        )
    read = ("consume", "split", "--group", "pair", "--from-beginning")
    some = shell.run(*read, "--max", "7").splitlines()
    rest = shell.run(*read, "--no-follow").splitlines()
    assert (len(some), len(rest)) == (7, 13)
    assert sorted(some + rest) == sorted(f"{partition}-{n}" for partition in range(4) for n in range(5))


def test_one_record_is_the_same_through_every_door(shell: Shell) -> None:
    """Three protocols write to one partition and each reads what the others wrote, at the same offsets."""
    endpoints = shell.node.endpoints
    shell.run("topic", "create", "shared", "--partitions", "1")
    for door in ("kafka", "rustlog", "mlog"):
        shell.run("produce", "shared", "--door", door, "--address", endpoints[door], stdin=f"by {door}\n")
    for door in ("kafka", "rustlog", "mlog"):
        read = ("consume", "shared", "--door", door, "--address", endpoints[door], "--from-beginning", "--no-follow")
        assert shell.run(*read, "--format", "{offset} {value}") == "0 by kafka\n1 by rustlog\n2 by mlog\n"


@contextmanager
def started_producer(shell: Shell, topic: str, door: str, text: str) -> "Iterator[subprocess.Popen[str]]":
    """One that has been given `text` through a pipe, and waits for more."""
    shell.run("topic", "create", topic)
    with shell.start("produce", topic, "--door", door, "--address", shell.node.endpoints[door]) as producer:
        assert producer.stdin is not None
        producer.stdin.write(text)
        producer.stdin.flush()
        yield producer


@pytest.mark.parametrize("door", ["kafka", "rustlog", "mlog"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_read_is_sent_when_the_producer_is_interrupted(
    shell: Shell, door: str, number: signal.Signals, status: int
) -> None:
    topic = f"interrupted-{door}-{status}"
    with started_producer(shell, topic, door, "one\ntwo\n") as producer:
        eventually(lambda: unread(producer.stdin) == 0, 60, "the lines to be read")
        producer.send_signal(number)
        told = producer.communicate(timeout=60)[1]
    assert (producer.returncode, told) == (status, f"2 records to {topic}\n")
    assert shell.run("consume", topic, "--from-beginning", "--no-follow") == "one\ntwo\n"


@pytest.mark.parametrize("door", ["kafka", "rustlog", "mlog"])
def test_a_line_from_a_pipe_that_trickles_leaves_soon(shell: Shell, door: str) -> None:
    """As `tail -f log | headrace produce` has it: the next line may be long in coming."""
    topic = f"trickled-{door}"
    with started_producer(shell, topic, door, "one\ntwo\nthr") as producer:
        assert shell.run("consume", topic, "--from-beginning", "--max", "2") == "one\ntwo\n"
        assert producer.poll() is None
        told = producer.communicate("ee\nfour", timeout=60)[1]
    assert (producer.returncode, told) == (0, f"4 records to {topic}\n")
    assert shell.run("consume", topic, "--offset", "2", "--no-follow") == "three\nfour\n"


def test_a_consumer_that_is_terminated_leaves_its_group(shell: Shell) -> None:
    shell.run("topic", "create", "left")
    with shell.start("consume", "left", "--group", "leavers", "--from-beginning") as consumer:
        eventually(lambda: shell.group_state("leavers") == "stable", 60, "the group to be stable")
        consumer.terminate()
        told = consumer.communicate(timeout=60)[1]
    assert (consumer.returncode, told) == (143, "")
    assert shell.group_state("leavers") == "empty"


def test_a_logjam_message_is_a_record(shell: Shell) -> None:
    address = shell.node.endpoints["logjam_router"]
    shell.run(
        *("produce", "shop-production", "--door", "logjam", "--address", address, "--key-separator", " "),
        stdin='logs.page {"action":"Home#index"}\n',
    )
    # A message is accepted before it is stored, and the topic made with the first of them.
    eventually(
        lambda: "logjam-shop-production" in {topic["name"] for topic in shell.json("topic", "list")}, 60, "no topic"
    )
    line = shell.run(
        *("consume", "logjam-shop-production", "--from-beginning", "--max", "1", "--format", "{key} {value}")
    )
    assert line == 'logs.page {"action":"Home#index"}\n'


def test_the_cluster_is_described(shell: Shell) -> None:
    cluster = shell.json("cluster", "describe")
    host, _, port = shell.node.endpoints["kafka"].rpartition(":")
    (broker,) = cluster["brokers"]
    assert (broker["host"], broker["port"], broker["is_controller"]) == (host, int(port), True)
    assert len(cluster["cluster_id"]) == 22


@pytest.mark.parametrize(
    "command",
    ["topic list", "group list", "transaction list", "cluster describe", "config describe topic t", "produce t"],
)
def test_no_node_is_said_so(shell: Shell, command: str) -> None:
    told = shell.run(*command.split(), "--bootstrap", "127.0.0.1:1", status=1)
    assert told == "headrace: no node at 127.0.0.1:1: Connection refused\n"


@pytest.mark.parametrize("door", ["rustlog", "mlog"])
def test_no_door_is_said_so(shell: Shell, door: str) -> None:
    read = ("consume", "t", "--from-beginning", "--no-follow", "--door", door, "--address")
    assert "no node at 127.0.0.1:1: Connection refused" in shell.run(*read, "127.0.0.1:1", status=1)
    assert shell.run(*read, "nonsense", status=1) == "headrace: 'nonsense' is not host:port\n"


def test_the_port_of_another_door_is_said_so(shell: Shell) -> None:
    admin = shell.node.endpoints["admin"]
    assert "does not speak Kafka's protocol" in shell.run("topic", "list", "--bootstrap", admin, status=1)
    for door, name in (("rustlog", "RustLog"), ("mlog", "mlog")):
        told = shell.run("produce", "t", "--door", door, "--address", admin, stdin="x\n", status=1)
        assert f"does not speak {name}'s protocol" in told


def test_a_logjam_door_that_is_not_there_is_said_so(shell: Shell) -> None:
    told = shell.run("consume", "shop-production", "--door", "logjam", "--address", "127.0.0.1:1", status=1)
    assert told == "headrace: no node at 127.0.0.1:1: Connection refused\n"


def test_what_is_not_there_is_named(shell: Shell) -> None:
    shell.run("topic", "create", "small")
    shell.run("produce", "small", stdin="one\n")
    assert shell.run("topic", "describe", "nope", status=1) == "headrace: no topic 'nope'\n"
    assert shell.run("topic", "delete", "nope", status=1) == "headrace: no topic 'nope'\n"
    assert shell.run("consume", "nope", "--no-follow", status=1) == "headrace: no topic 'nope'\n"
    assert "small has no partition 9" in shell.run("produce", "small", "--partition", "9", stdin="x\n", status=1)
    told = shell.run("consume", "small", "--offset", "100", "--no-follow", status=1)
    assert told == "headrace: small partition 0 has offsets 0 to 0, not 100\n"
    assert "no broker '7'" in shell.run("config", "describe", "broker", "7", status=1)
    logjam = ("--door", "logjam", "--address", shell.node.endpoints["logjam_router"])
    assert "<application>-<environment>" in shell.run("produce", "nodash", *logjam, stdin="x\n", status=1)


@pytest.mark.parametrize(
    ("content", "readable"),
    [(None, "before\none\ntwo\n"), (b"no records at all", "before\n"), (b"", "before\n")],
    ids=["fewer records", "no records", "nothing"],
)
def test_a_batch_that_does_not_hold_what_its_header_says_does_not_hang_the_reader(
    shell: Shell, content: bytes | None, readable: str
) -> None:
    """Nor end it: Kafka's C client aborts the process at one that unpacks to nothing."""
    topic = "lying" if content is None else f"lying-{len(content)}"
    with RawKafka(shell.node.kafka) as client:
        client.create_topic(topic)
        client.produce(topic, 0, batch_of([b"before"]))
        client.produce(topic, 0, lying_batch(content, claimed_count=100))
        client.produce(topic, 0, batch_of([b"after"]))
    read = ("consume", topic, "--from-beginning", "--no-follow")
    place = f"{topic} partition 0"
    for more in ((), ("--group", "patient") if content == b"" else ("--committed-only",)):
        done = shell.call(*read, *more, status=1)
        assert done.stdout == readable
        assert f"headrace: {place}: the batch of offsets 1 to 100 does not hold what its header says" in done.stderr
        assert "what follows begins at offset 101" in done.stderr
    assert shell.run("consume", topic, "--offset", "101", "--no-follow") == "after\n"
    for door in ("rustlog", "mlog"):
        told = shell.run(*read, "--door", door, "--address", shell.node.endpoints[door], status=1)
        assert told.startswith(f"headrace: {place} from offset 1 on: ")


def test_only_committed_records_are_read_when_asked_for(shell: Shell) -> None:
    shell.run("topic", "create", "decided", "--partitions", "1")
    producer = Producer({"bootstrap.servers": shell.node.kafka, "transactional.id": "cli"})
    producer.init_transactions(30)
    for value, is_commit in ((b"first", True), (b"never", False), (b"second", True), (b"nor this", False)):
        producer.begin_transaction()
        producer.produce("decided", value, partition=0)
        producer.flush(30)
        if is_commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    read = ("consume", "decided", "--from-beginning", "--no-follow")
    assert shell.run(*read) == "first\nnever\nsecond\nnor this\n"
    assert shell.run(*read, "--committed-only") == "first\nsecond\n"
    producer.begin_transaction()
    producer.produce("decided", b"open", partition=0)
    producer.flush(30)
    assert shell.run(*read, "--committed-only") == "first\nsecond\n"
    producer.abort_transaction(30)


def test_a_second_node_on_the_same_data_is_refused(shell: Shell) -> None:
    arguments = ("up", "--ephemeral", "--no-pipeline", "--data-dir", str(shell.node.data_dir))
    assert "in use by process" in shell.run(*arguments, status=1)


def test_an_ephemeral_node_leaves_nothing_behind() -> None:
    command = [sys.executable, "-m", "headrace", "up", "--ephemeral", "--no-pipeline"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        data_dir = Path(process.stderr.readline().removeprefix("ephemeral data in ").strip())
        eventually((data_dir / "endpoints.json").exists, START_SECONDS_MAX, "the node did not come up")
        endpoints = json.loads((data_dir / "endpoints.json").read_text())
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        assert process.wait(STOP_SECONDS_MAX) == 0
    assert all(address.startswith("127.0.0.1:") for address in endpoints.values())
    assert not data_dir.exists()


def test_on_a_terminal_the_table_of_doors_comes_before_every_log_line(tmp_path: Path) -> None:
    """And whoever manages services hears of the same start, and of its end."""
    terminal, inside = pty.openpty()
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(60)
    command = [sys.executable, "-m", "headrace", "up", "--ephemeral", "--no-pipeline"]
    # Whatever else is said at a start, this much is: a warning, below the table.
    environ = {**os.environ, "HEADRACE_NO_SUCH_SETTING": "1", "NOTIFY_SOCKET": str(tmp_path / "notify")}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=inside, stderr=inside, env=environ) as process:
        shown = b""
        while b"names no setting" not in shown:
            shown += os.read(terminal, 10_000)
        assert manager.recv(100) == b"READY=1"
        process.send_signal(signal.SIGINT)
        assert manager.recv(100) == b"STOPPING=1"
        while b"stopped" not in shown:
            shown += os.read(terminal, 10_000)
        assert process.wait(STOP_SECONDS_MAX) == 0
    manager.close()
    os.close(terminal)
    os.close(inside)
    lines = [line for line in shown.decode().splitlines() if line.strip()]
    assert lines[0].startswith("ephemeral data in ")
    assert "headrace is up" in lines[1]
    assert "door open" not in shown.decode()
    assert shown.index(b"Ctrl-C stops it") < shown.index(b"names no setting") < shown.index(b"stopping")


@pytest.mark.parametrize("is_raw", [False, True])
def test_records_do_not_move_the_cursor_of_a_terminal_unless_asked_to(shell: Shell, is_raw: bool) -> None:
    topic, hostile = f"hostile-{is_raw}", b"\x1b]0;owned\x07"
    with RawKafka(shell.node.kafka) as client:
        client.create_topic(topic)
        assert client.produce(topic, 0, batch_of([hostile])).error_code == 0
    terminal, inside = pty.openpty()
    command = [sys.executable, "-m", "headrace", "consume", topic, "--from-beginning", "--no-follow"]
    done = subprocess.run(
        command + ["--raw"] * is_raw,
        stdin=subprocess.DEVNULL,
        stdout=inside,
        check=True,
        timeout=120,
        env={"HEADRACE_BOOTSTRAP": shell.node.kafka},
    )
    shown = os.read(terminal, 1000)
    os.close(terminal)
    os.close(inside)
    assert done.returncode == 0
    assert (hostile in shown, b"\\x1b]0;owned\\x07" in shown) == (is_raw, not is_raw)
    assert shell.run("consume", topic, "--from-beginning", "--no-follow") == hostile.decode() + "\n"
