"""What may wait for subscribers, in bytes.

ZeroMQ bounds what it queues for a subscriber by the number of messages. A million of them are little or gigabytes, by their
size. So the bound moves with the size of what is published: a subscriber that does not read has a share of memory, not a
number of messages.
"""

from typing import Final

import zmq

UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""For one subscriber, about."""
_MESSAGES_MIN: Final = 16
_MEMORY: Final = 64
"""Messages after which the mean size has followed a change by two thirds."""
_CHANGE_WORTH: Final = 1.5


class SendRoom:
    """A publishing socket whose queues are bounded by the size of what is sent."""

    def __init__(self, socket: "zmq.Socket[bytes]", messages_max: int) -> None:
        self.socket = socket
        self._messages_max = messages_max
        self._mean_size = 0.0
        self._set_size = 1.0
        """What the present bound was made for."""

    def send(self, frames: list[bytes]) -> None:
        """Never blocks: past its bound a PUB socket drops for the slow subscriber only."""
        self._mean_size += (sum(map(len, frames)) - self._mean_size) / _MEMORY
        if not self._set_size / _CHANGE_WORTH <= self._mean_size <= self._set_size * _CHANGE_WORTH:
            self._adjust()
        self.socket.send_multipart(frames, flags=zmq.DONTWAIT)

    def _adjust(self) -> None:
        self._set_size = max(self._mean_size, 1.0)
        fitting = max(int(UNREAD_BYTES_MAX / self._set_size), _MESSAGES_MIN)
        self.socket.setsockopt(zmq.SNDHWM, min(fitting, self._messages_max))
