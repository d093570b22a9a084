"""What machine this is, as far as figures depend on it."""

import os
import platform
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Final

import headrace
from headrace.bench import maven
from headrace.bench.errors import RivalUnavailable
from headrace.bench.results import Machine

_FLUSH_PROBES: Final = 200
_BLOCK_BYTES: Final = 4096


def describe_machine(directory: Path) -> Machine:
    """The machine as brokers that write below `directory` see it."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        kernel=f"{platform.system()} {platform.release()}",
        file_system=_file_system(directory),
        flush_ms=_flush_ms(directory),
        congestion=_congestion(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        java=_java(),
        kafka=maven.KAFKA_NEWEST,
        headrace=_headrace(),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """The type of the mount that holds `directory`: the longest mount point above it."""
    path = directory.resolve()
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = [(len(point), kind) for point, kind in mounts if path.is_relative_to(point)]
    return max(above)[1] if above else "unknown"


def _flush_ms(directory: Path) -> float:
    directory.mkdir(parents=True, exist_ok=True)
    probe = directory / "flush-probe"
    block = bytes(_BLOCK_BYTES)
    waits = []
    file = os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    try:
        os.posix_fallocate(file, 0, _BLOCK_BYTES * _FLUSH_PROBES)
        for index in range(_FLUSH_PROBES):
            began = time.perf_counter()
            os.pwrite(file, block, index * _BLOCK_BYTES)
            os.fdatasync(file)
            waits.append((time.perf_counter() - began) * 1e3)
    finally:
        os.close(file)
        probe.unlink()
    return statistics.median(waits)


def _congestion() -> str:
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    except OSError:
        return "unknown"


def _java() -> str:
    try:
        done = subprocess.run([maven.java_command(), "-version"], capture_output=True, text=True, timeout=30)
    except RivalUnavailable:
        return "none"
    return done.stderr.partition("\n")[0].strip()


def _headrace() -> str:
    """The version, and the commit where this is a work tree."""
    git = shutil.which("git")
    if git is None:
        return headrace.__version__
    source = Path(headrace.__file__).parent
    done = subprocess.run([git, "-C", str(source), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    commit = done.stdout.strip()
    return f"{headrace.__version__} ({commit})" if commit else headrace.__version__
