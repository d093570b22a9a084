"""The process that runs queries: where it keeps its files, and that it ends with whoever started it and takes everything along."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.node import eventually

from headrace.pipeline.settings import SparkSettings
from headrace.pipeline.sql.permitted import LOCKED
from headrace.pipeline.sql.worker import confined, size_below

PROGRAM = """
import queue, subprocess, sys
from pathlib import Path
from headrace.pipeline.sql import worker

worker._SCRATCH_BYTES_MAX, scratch = 1000, Path(sys.argv[1])
child = subprocess.Popen(["sleep", "600"], process_group=0)
(scratch.parent / "child").write_text(str(child.pid))
orders = queue.Queue()
watch = worker.Watch(orders, scratch, tell=lambda answer: print(answer.reason, flush=True))
if sys.argv[2] == "full":
    (scratch / "spilled").write_bytes(b"x" * 1001)
watch.run()
"""


def is_alive(process_id: int) -> bool:
    try:
        return (Path("/proc") / str(process_id) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("what", ["orphaned", "full"])
def test_it_ends_with_the_node_or_when_the_disk_has_enough_of_it(tmp_path: Path, what: str) -> None:
    scratch, note = tmp_path / "scratch", tmp_path / "child"
    scratch.mkdir()
    command = [sys.executable, "-c", PROGRAM, str(scratch), what]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    eventually(lambda: note.exists() and bool(note.read_text()), 60, "it does not start")
    child = int(note.read_text())
    assert is_alive(child)
    if what == "orphaned":
        # As the kernel closes it for a node that is killed.
        process.stdin.close()
    said = process.stdout.read()
    assert process.wait() == 1
    assert ("bytes of the disk" in said) is (what == "full")
    eventually(lambda: not is_alive(child), 20, "its child is left")
    assert not scratch.exists()
    process.stdin.close()
    process.stdout.close()


def test_whatever_the_pipelines_use_a_query_has_a_spark_of_its_own_and_our_locks(tmp_path: Path) -> None:
    theirs = {"spark.sql.runSQLOnFiles": "true", "spark.local.dir": "/elsewhere", "spark.jars": "iceberg.jar"}
    found = confined(SparkSettings(remote="sc://spark:15002", master="yarn", conf=theirs), tmp_path)
    assert (found.remote, found.master) == (None, "local[*]")
    assert found.conf.items() >= LOCKED.items()
    assert (found.conf["spark.local.dir"], found.conf["spark.jars"]) == (str(tmp_path), "iceberg.jar")


def test_all_files_below_count(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(b"x" * 10)
    (tmp_path / "d").write_bytes(b"x" * 5)
    assert size_below(tmp_path) == 15
