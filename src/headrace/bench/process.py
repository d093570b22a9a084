"""What a process costs, read from /proc: CPU seconds and resident bytes, its children included."""

import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Final

import msgspec

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a running broker."""

    cpu_seconds: float
    resident_bytes: int


def read_usage(pid: int) -> Reading:
    """CPU seconds (user and system) used so far and resident bytes now, over the tree below `pid`."""
    members = [usage for member in _tree(pid) if (usage := _usage_of(member)) is not None]
    return Reading(
        cpu_seconds=sum(usage.cpu_seconds for usage in members),
        resident_bytes=sum(usage.resident_bytes for usage in members),
    )


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def stop_process(process: subprocess.Popen[bytes], *, seconds_max: float) -> None:
    """Ask it to end; after `seconds_max` end it. Returns once it is gone."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(seconds_max)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tree(pid: int) -> list[int]:
    found = [pid]
    for member in found:
        try:
            for children in Path(f"/proc/{member}/task").glob("*/children"):
                found.extend(int(child) for child in children.read_text().split())
        except OSError:
            continue  # It ended between two looks.
    return found


def _usage_of(pid: int) -> Reading | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command name, in parentheses, may hold spaces; the fields are counted from behind it (proc(5)).
    fields = stat.rpartition(")")[2].split()
    user_ticks, system_ticks, resident_pages = int(fields[11]), int(fields[12]), int(fields[21])
    return Reading(
        cpu_seconds=(user_ticks + system_ticks) / _TICKS_PER_SECOND,
        resident_bytes=resident_pages * _PAGE_BYTES,
    )
