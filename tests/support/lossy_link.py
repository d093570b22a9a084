"""Two network namespaces and a bad line between them: packets are late, and some do not come.

The kernel need not have netem: two TUN devices end in this process, which carries every packet from one to the other. TCP and UDP suffer alike.
"""

import contextlib
import fcntl
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x0001 | 0x1000
_QUEUE_MAX = 4_000
"""Packets on their way in one direction: what comes when the line is full is lost."""
_PACKET_MAX = 2_000


class Line(msgspec.Struct, frozen=True):
    """The two ends: a namespace each, and its address."""

    near: str
    far: str
    near_address: str
    far_address: str

    def at_near(self, *words: str) -> list[str]:
        """The command, run there."""
        return ["ip", "netns", "exec", self.near, *words]

    def at_far(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.far, *words]


@contextlib.contextmanager
def lossy_link(*, loss: float, delay_ms: float, congestion: str = "reno", seed: int = 1) -> Iterator[Line]:
    """`delay_ms` and `loss` are those of one direction, `congestion` is what TCP uses at both ends."""
    number = os.getpid() % 250
    line = Line(f"hrqa{number}", f"hrqb{number}", f"10.77.{number}.1", f"10.77.{number}.2")
    ends: list[int] = []
    try:
        for namespace, address in ((line.near, line.near_address), (line.far, line.far_address)):
            _run("ip", "netns", "add", namespace)
            ends.append(_tun(namespace))
            _run("ip", "link", "set", namespace, "netns", namespace)
            inside = ("ip", "netns", "exec", namespace)
            _run(*inside, "ip", "addr", "add", f"{address}/30", "dev", namespace)
            _run(*inside, "ip", "link", "set", namespace, "up", "mtu", "1500", "txqueuelen", "2000")
            _run(*inside, "ip", "link", "set", "lo", "up")
            _run(*inside, "sysctl", "-w", f"net.ipv4.tcp_congestion_control={congestion}")
        command = [sys.executable, __file__, *map(str, ends), str(loss), str(delay_ms), str(seed)]
        carrier = subprocess.Popen(command, pass_fds=ends)
        try:
            yield line
        finally:
            carrier.kill()
            carrier.wait()
    finally:
        for end in ends:
            os.close(end)
        for namespace in (line.near, line.far):
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _tun(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER))
    return descriptor


def carry(first: int, second: int, *, loss: float, delay_s: float, seed: int) -> None:
    """For ever."""
    chance = random.Random(seed)
    ways = [(first, second, deque[tuple[float, bytes]]()), (second, first, deque[tuple[float, bytes]]())]
    while True:
        due = min((queue[0][0] for _, _, queue in ways if queue), default=None)
        wait = None if due is None else max(due - time.monotonic(), 0)
        select.select([first, second], [], [], wait)
        for source, target, queue in ways:
            _take(source, queue, chance, loss, delay_s)
            now = time.monotonic()
            while queue and queue[0][0] <= now:
                with contextlib.suppress(OSError):
                    os.write(target, queue.popleft()[1])


def _take(source: int, queue: deque[tuple[float, bytes]], chance: random.Random, loss: float, delay_s: float) -> None:
    for _ in range(64):
        try:
            packet = os.read(source, _PACKET_MAX)
        except BlockingIOError:
            return
        if chance.random() >= loss and len(queue) < _QUEUE_MAX:
            queue.append((time.monotonic() + delay_s, packet))


def main(arguments: Sequence[str]) -> None:
    first, second, loss, delay_ms, seed = arguments
    carry(int(first), int(second), loss=float(loss), delay_s=float(delay_ms) / 1000, seed=int(seed))


if __name__ == "__main__":
    main(sys.argv[1:])
