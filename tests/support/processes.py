"""What Linux says about processes: who started whom, how much memory they hold, how much they have worked."""

import os
from pathlib import Path


def children_of(process_id: int) -> list[int]:
    """Also those started by its other threads; none once the process is gone."""
    children = []
    for path in Path(f"/proc/{process_id}/task").glob("*/children"):
        try:
            children += [int(child) for child in path.read_text().split()]
        except OSError:
            continue
    return children


def descendants_of(process_id: int) -> list[int]:
    found = []
    for child in children_of(process_id):
        found += [child, *descendants_of(child)]
    return found


def arguments_of(process_id: int) -> list[str]:
    """Its program first; empty once the process is gone."""
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def program_of(process_id: int) -> str:
    return next(iter(arguments_of(process_id)), "")


def jvm_of(process_id: int) -> int | None:
    """The JVM that a PySpark driver started."""
    return next((child for child in descendants_of(process_id) if program_of(child).endswith("java")), None)


def resident_bytes(process_id: int) -> int:
    """Its share of memory: pages that forked workers have in common are divided among them."""
    try:
        lines = Path(f"/proc/{process_id}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def cpu_seconds(process_id: int) -> float:
    """Of it and everybody it has started, directly or not, those that have ended and were waited for included."""
    total = 0
    for each in (process_id, *descendants_of(process_id)):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # User and system time of its own, and of its children that are gone.
        total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")
