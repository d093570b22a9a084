import signal

import pytest

from headrace.cli.doors import (
    LOGJAM_PUB_PORT,
    PORTS,
    Gathering,
    Outgoing,
    Start,
    open_reader,
    open_writer,
    require_only_value,
)
from headrace.cli.options import DEFAULT_CONNECTION
from headrace.doors.kafka.settings import KafkaSettings
from headrace.doors.listening import parse_address
from headrace.doors.logjam.settings import LogjamSettings
from headrace.doors.mlog.settings import MlogSettings
from headrace.doors.quic.settings import QuicSettings
from headrace.doors.rustlog.settings import RustLogSettings
from headrace.errors import Invalid


def test_doors_are_looked_for_where_a_node_without_settings_opens_them() -> None:
    listening = {
        "kafka": KafkaSettings().listen,
        "quic": QuicSettings().listen,
        "rustlog": RustLogSettings().listen,
        "mlog": MlogSettings().listen,
        "logjam": LogjamSettings().listen_router,
    }
    assert {door: parse_address(address)[1] for door, address in listening.items()} == PORTS
    assert parse_address(LogjamSettings().listen_pub)[1] == LOGJAM_PUB_PORT
    assert parse_address(DEFAULT_CONNECTION.bootstrap)[1] == PORTS["kafka"]


def test_what_a_door_cannot_carry_is_refused_rather_than_lost() -> None:
    require_only_value("rustlog", Outgoing(value=b"v"))
    with pytest.raises(Invalid, match="carries no keys"):
        require_only_value("rustlog", Outgoing(value=b"v", key=b"k"))
    with pytest.raises(Invalid, match="carries no headers"):
        require_only_value("mlog", Outgoing(value=b"v", headers=[("a", b"1")]))
    with pytest.raises(Invalid, match="takes no codec"):
        open_writer("logjam", "localhost:1", acks="all", codec="zstd")
    with pytest.raises(Invalid, match="does not know transactions"):
        open_reader("mlog", "localhost:1", group=None, start=Start(), is_committed_only=True)


def test_doors_that_cannot_start_there_say_where_they_can() -> None:
    with pytest.raises(Invalid, match="--from-beginning or --offset"):
        open_reader("mlog", "localhost:1", group=None, start=Start(), is_committed_only=False)
    with pytest.raises(Invalid, match="--door kafka"):
        open_reader("logjam", "localhost:1", group=None, start=Start(offset=3), is_committed_only=False)


def test_values_are_sent_when_there_are_enough_of_them_in_a_pause_and_at_the_end() -> None:
    sent: list[list[bytes]] = []
    gathering = Gathering(sent.append, records_max=3, bytes_max=10)
    for value in (b"a", b"b", b"c", b"0123456789", b"d"):
        gathering.add(value)
    gathering.pause()
    gathering.pause()
    gathering.add(b"e")
    gathering.flush()
    gathering.flush()
    assert sent == [[b"a", b"b", b"c"], [b"0123456789"], [b"d"], [b"e"]]


@pytest.mark.usefixtures("plain_interrupt")
def test_an_interruption_waits_for_what_is_being_sent_and_nothing_is_sent_twice() -> None:
    sent: list[list[bytes]] = []

    def send(values: list[bytes]) -> None:
        signal.raise_signal(signal.SIGINT)
        sent.append(values)

    gathering = Gathering(send, records_max=3, bytes_max=10)
    gathering.add(b"a")
    with pytest.raises(KeyboardInterrupt):
        gathering.pause()
    gathering.flush()
    assert sent == [[b"a"]]
