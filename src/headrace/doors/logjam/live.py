"""The live stream of dashboards: totals of the last second and errors, on a PUB socket of its own.

Costs nothing until somebody subscribes: until then no body is looked into.
"""

import asyncio
from typing import Final

import msgspec

from headrace.clock import Clock
from headrace.doors.logjam.metrics import LogjamMetrics
from headrace.doors.logjam.send_room import SendRoom
from headrace.doors.logjam.subscriptions import Subscriptions
from headrace.wire.logjam.live_stream import Fields, LiveStream
from headrace.wire.logjam.messages import DataMessage

TICK_S: Final = 1.0
_fields: Final = msgspec.json.Decoder(Fields)


class LivePublisher:
    def __init__(self, room: SendRoom, clock: Clock, metrics: LogjamMetrics) -> None:
        self._room = room
        self._clock = clock
        self._metrics = metrics
        self._stream = LiveStream()
        self.subscriptions = Subscriptions(room.socket)

    def add(self, message: DataMessage, body: bytes) -> None:
        """A message whose decompressed body is a JSON object."""
        if not self.subscriptions.count:
            return
        try:
            fields = _fields.decode(body)
        except (msgspec.DecodeError, RecursionError):
            # It is stored all the same; what nests too deeply for us is not for a plot.
            return
        self._stream.add(message.stream, message.topic, fields, now_ms=self._clock.monotonic_ms())

    async def tick_forever(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for frames in self._stream.drain(now_ms=self._clock.monotonic_ms()):
                self._room.send(frames)
                self._metrics.live_total += 1
