"""What the broker says is only on its disk, out of its metrics."""

import socket
from concurrent.futures import ThreadPoolExecutor

from headrace.cli.exposure import Exposure, parse_exposure, read_exposure

METRICS = """\
# HELP headrace_exposure_bytes Bytes that only this broker's disk has, by partition.
# TYPE headrace_exposure_bytes gauge
headrace_exposure_bytes{partition="0",topic="orders"} 1024.0
headrace_exposure_bytes{partition="3",topic="odd \\"name\\""} 7.0
# HELP headrace_exposure_ms Age of the oldest record that only this broker's disk has, by partition.
# TYPE headrace_exposure_ms gauge
headrace_exposure_ms{partition="0",topic="orders"} 2500.0
# HELP other Something else.
# TYPE other gauge
other 1.0
"""


def test_exposure_is_read_by_topic_and_partition() -> None:
    assert parse_exposure(METRICS) == {
        ("orders", 0): Exposure(1024, 2500),
        ('odd "name"', 3): Exposure(7, 0),
    }


def test_an_admin_door_that_does_not_answer_is_no_error() -> None:
    assert read_exposure("127.0.0.1:1") is None


def test_something_else_at_that_address_is_no_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(read_exposure, f"127.0.0.1:{other.getsockname()[1]}")
        asked, _ = other.accept()
        with asked:
            asked.recv(1000)
            asked.sendall(b"no HTTP at all\r\n\r\n")
        assert asking.result(60) is None
