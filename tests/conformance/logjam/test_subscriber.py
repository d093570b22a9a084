"""The shipped subscriber and a device that falls silent."""

import pytest
import zmq
from tests.support.metastores import ManualClock

from headrace.clients.logjam import LogjamSubscriber
from headrace.wire.logjam.compression import Compression
from headrace.wire.logjam.messages import build_heartbeat
from headrace.wire.logjam.meta import Meta

PATIENCE_MS = 60_000
SUBSCRIBED = b"\x01"
"""To everything; a leaving subscriber is a zero."""


@pytest.mark.requirement("X2.6")
def test_a_device_that_misses_six_heartbeats_is_connected_to_anew() -> None:
    clock = ManualClock()
    with zmq.Context() as context, context.socket(zmq.XPUB) as device:
        device.setsockopt(zmq.XPUB_VERBOSE, 1)
        address = f"tcp://127.0.0.1:{device.bind_to_random_port('tcp://127.0.0.1')}"

        def beat(sequence: int) -> None:
            while device.poll(PATIENCE_MS):
                if device.recv() == SUBSCRIBED:
                    break
            else:
                raise AssertionError("nobody subscribes")
            meta = Meta(compression=Compression.NONE, device_number=7, created_ms=0, sequence=sequence)
            device.send_multipart(build_heartbeat(address, meta))

        with LogjamSubscriber(address, clock=clock) as subscriber:
            beat(1)
            hear(subscriber, 1)
            clock.advance(30_000)
            assert subscriber.receive(timeout_ms=0) is None
            assert not device.poll(200), "it was given up on too early"
            clock.advance(1)
            assert subscriber.receive(timeout_ms=0) is None
            beat(4)
            hear(subscriber, 2)
            assert subscriber.gaps.lost_total == 2


def hear(subscriber: LogjamSubscriber, count: int) -> None:
    """The clock stands still, so each call looks once."""
    for _ in range(PATIENCE_MS // 10):
        if subscriber.heartbeats == count:
            return
        subscriber.receive(timeout_ms=10)
    raise AssertionError(f"{subscriber.heartbeats} heartbeats, not {count}")
