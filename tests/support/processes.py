"""What Linux says about processes: who started whom, and how much memory they hold."""

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
