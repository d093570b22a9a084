"""The device's side: accepted messages go out on PUB with this server's number, heartbeats in between.

The numbers go on when nobody listens, so that a subscriber who comes back sees what it has missed.
"""

import asyncio

from headrace.clock import Clock
from headrace.doors.logjam.metrics import LogjamMetrics
from headrace.doors.logjam.send_room import SendRoom
from headrace.doors.logjam.subscriptions import Subscriptions
from headrace.wire.logjam.messages import DataMessage, build_heartbeat
from headrace.wire.logjam.meta import Meta, encode_meta
from headrace.wire.logjam.sequence import SequenceNumbers


class Publisher:
    def __init__(self, room: SendRoom, clock: Clock, metrics: LogjamMetrics, *, device_number: int) -> None:
        self._room = room
        self._clock = clock
        self._metrics = metrics
        self._device_number = device_number
        self._sequence = SequenceNumbers()
        self.subscriptions = Subscriptions(room.socket)

    def publish(self, message: DataMessage) -> None:
        """Frames stay as they came, but for the meta: this device's number and the next in its sequence."""
        meta = message.meta
        sequence = self._sequence.next()
        if not self.subscriptions.count:
            return
        frame = encode_meta(
            Meta(
                compression=meta.compression,
                device_number=self._device_number,
                created_ms=meta.created_ms or self._clock.now_ms(),
                sequence=sequence,
            )
        )
        self._room.send([message.app_env, message.topic, message.body, frame])
        self._metrics.published_total += 1

    async def beat_forever(self, address: str, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            meta = Meta(
                device_number=self._device_number,
                created_ms=self._clock.now_ms(),
                sequence=self._sequence.next(),
            )
            self._room.send(build_heartbeat(address, meta))
