"""Every file of a node, damaged in every way, while it stands still and while it runs, with a bucket on disk and on S3.

`make damage` runs all of it, the suite a cell or two of each kind.
"""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.checker import History
from tests.support.damage import Cell, Verdict, all_cells, case_of, last_words, start
from tests.support.damaged_world import Stores, World, build
from tests.support.node import NodeProcess, eventually
from tests.support.object_stores import seaweedfs
from tests.support.outages import problems
from tests.support.raw_kafka import RawKafka
from tests.support.workload import Load

LOCAL_SAMPLE = (
    Cell("ring", "one bit", "stopped"),
    Cell("spill", "missing", "stopped"),
    Cell("metastore-wal", "truncated", "running"),
    Cell("object", "one bit", "stopped"),
)
S3_SAMPLE = (
    Cell("object", "missing", "stopped"),
    Cell("cluster.json", "foreign", "stopped"),
)
COPIES = 3
Worlds = tuple[World, World]


@pytest.fixture(scope="module", params=["local", "s3"])
def worlds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """Ours, and somebody else's."""
    directory = tmp_path_factory.mktemp("worlds")
    if request.param == "local":
        yield made(directory, Stores())
    else:
        with seaweedfs() as server:
            yield made(directory, Stores(server))
    shutil.rmtree(directory, ignore_errors=True)


def made(directory: Path, stores: Stores) -> Worlds:
    ours = asyncio.run(build(directory / "ours", stores, name="node", values="ours"))
    theirs = asyncio.run(build(directory / "theirs", stores, name="stranger", values="theirs"))
    return ours, theirs


def judge(cells: list[Cell], worlds: Worlds, directory: Path) -> list[str]:
    """What was wrong, for all of them: one wrong cell says nothing about the others."""
    wrong: list[str] = []
    for number, cell in enumerate(cells):
        case = case_of(cell, *worlds, directory / f"{number}")
        if case is None:
            continue
        try:
            print(f"{cell}: {case.run()}", flush=True)
        except (Verdict, AssertionError) as verdict:
            print(f"{cell}: WRONG\n{verdict}", flush=True)
            wrong.append(str(verdict))
        shutil.rmtree(directory / f"{number}", ignore_errors=True)
    return wrong


@pytest.mark.slow
def test_a_sample_of_the_damage_matrix(worlds: Worlds, tmp_path: Path) -> None:
    is_local = worlds[0].stores.server is None
    wrong = judge(list(LOCAL_SAMPLE if is_local else S3_SAMPLE), worlds, tmp_path)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_the_whole_damage_matrix(worlds: Worlds, tmp_path: Path) -> None:
    wrong = judge(list(all_cells()), worlds, tmp_path)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.slow
def test_a_copy_of_a_running_node_is_refused_or_right(tmp_path: Path, seed: int, kafka_address: str) -> None:
    """Copied file by file under load, so that its files are of different moments. What is served is what was acknowledged."""
    settings = {"listen.kafka": kafka_address, "tier.upload.interval.ms": 100}
    node = NodeProcess(tmp_path / "original", settings).start()
    history = History(seed)
    promised: list[History] = []
    try:
        with RawKafka(node.kafka) as client:
            client.create_topic("t", 2)
        with Load(node.kafka, "t", 2, history, librdkafka=False) as load:
            for number in range(COPIES):
                eventually(lambda at=200 * (number + 1): history.acked_count >= at, 60.0, "no load")  # type: ignore[misc]
                promised.append(history.fork())
                # What vanishes while it is copied is a part of what this is about.
                subprocess.run(
                    ["cp", "-r", tmp_path / "original", tmp_path / f"{number}"], check=False, capture_output=True
                )
        history.check(node.log_text())
    finally:
        node.kill()
    for number, known in enumerate(promised):
        copy = NodeProcess(tmp_path / f"{number}")
        try:
            if not start(copy):
                said = last_words(copy)
                assert "Traceback" not in said
                assert str(tmp_path / f"{number}") in said or "bucket" in said or "object store" in said
                continue
            told = problems(copy)
            known.verify(copy.kafka, load.places, may_miss=bool(told))
            known.check(copy.log_text())
        finally:
            copy.kill()
