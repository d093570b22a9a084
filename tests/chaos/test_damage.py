"""Every file of a node, damaged in every way, while it stands still and while it runs, with a bucket on disk and on S3.

`make damage` runs all of it; the suite a sample that another run chooses differently.
"""

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.damage import Cell, Verdict, all_cells, case_of
from tests.support.damaged_world import Stores, World, build
from tests.support.object_stores import seaweedfs

SAMPLE_SIZE = 8
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
def test_a_sample_of_the_damage_matrix(worlds: Worlds, tmp_path: Path, seed: int) -> None:
    cells = random.Random(seed).sample(list(all_cells()), SAMPLE_SIZE)
    assert not judge(cells, worlds, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_the_whole_damage_matrix(worlds: Worlds, tmp_path: Path) -> None:
    wrong = judge(list(all_cells()), worlds, tmp_path)
    assert not wrong, "\n\n".join(wrong)
