"""Numbering messages, and noticing from the numbers that some were lost."""

from dataclasses import dataclass, field
from typing import Final

from headrace.wire.logjam.meta import SEQUENCE_MAX

HEARTBEAT_INTERVAL_MS: Final = 5_000
HEARTBEATS_MISSED_MAX: Final = 6
DEVICES_MAX: Final = 10_000
"""Devices remembered at once: the number comes from the network, and the table must not grow with a liar."""


@dataclass(slots=True)
class SequenceNumbers:
    """1, 2, 3, ... and 1 again when 64 bits are used up."""

    last: int = 0

    def next(self) -> int:
        self.last = 1 if self.last >= SEQUENCE_MAX else self.last + 1
        return self.last


@dataclass(slots=True)
class _Device:
    last_sequence: int
    heard_ms: int


@dataclass(slots=True)
class GapDetector:
    """How many messages of each device went missing. Device 0 is every plain client, so it is not watched."""

    lost_total: int = 0
    _devices: dict[int, _Device] = field(default_factory=dict)

    def observe(self, device_number: int, sequence: int, *, now_ms: int) -> int:
        """Notes one message; returns how many are missing just before it.

        A number at or below the last one is a wrap or a restart, and counts as no gap. Any first number is taken.
        """
        if device_number == 0:
            return 0
        device = self._devices.get(device_number)
        if device is None:
            if len(self._devices) >= DEVICES_MAX:
                del self._devices[min(self._devices, key=lambda number: self._devices[number].heard_ms)]
            self._devices[device_number] = _Device(sequence, now_ms)
            return 0
        gap = max(0, sequence - device.last_sequence - 1)
        device.last_sequence = sequence
        device.heard_ms = now_ms
        self.lost_total += gap
        return gap

    def stale_devices(self, *, now_ms: int) -> list[int]:
        """Devices not heard of for six heartbeats: a subscriber connects to them anew."""
        credit_ms = HEARTBEAT_INTERVAL_MS * HEARTBEATS_MISSED_MAX
        return [number for number, device in self._devices.items() if now_ms - device.heard_ms > credit_ms]

    def expect_again(self, device_number: int, *, now_ms: int) -> None:
        """A new connection to it gets the same patience; what it sends meanwhile is still missed."""
        self._devices[device_number].heard_ms = now_ms
