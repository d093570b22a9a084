"""What a good client notices of hostile modules and hostile datagrams: `make hostile-bars`.

The client writes a record and reads it back, over and over. Kinds of windows take turns: quiet ones, ones while the same attack goes to another
node on this machine, and ones while it goes to the client's own. The second kind is what the attacker, and the node that it keeps
busy, take from the machine's cores. For modules there is a fourth: as many producers on the client's node, whose module is sound; where the hostile one makes large records of
small ones, they send large ones themselves, which they may. Half frames are held against somebody who writes over QUIC as fast as he can, too. The bar
is about what the attack adds, and is held against the slowest of the others. Of each kind the median of the windows is taken.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.support.attackers import (
    BUSY_STREAMS,
    DATAGRAMS,
    HALF_FRAMES,
    LARGE_OUTPUT,
    MODULES,
    SOUND,
    SOUND_AND_LARGE,
    Attacker,
    prepare,
)
from tests.support.canary import Canary
from tests.support.node import NodeProcess, running_node

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

SECONDS = float(os.environ.get("HEADRACE_TEST_SECONDS", "2"))
ROUNDS = int(os.environ.get("HEADRACE_TEST_ROUNDS", "7"))
RATIO_MAX = 1.5


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("own") / "data") as started:
        prepare(started)
        yield started


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("other") / "data") as started:
        prepare(started)
        yield started


@pytest.fixture
def canary(node: NodeProcess) -> Iterator[Canary]:
    with Canary(node.kafka) as singing:
        singing.check_undisturbed_by(lambda: time.sleep(1))
        yield singing


@pytest.mark.parametrize("name", [each for each in (*MODULES, *DATAGRAMS) if each not in (SOUND, SOUND_AND_LARGE)])
def test_a_good_client_is_as_fast_as_without(node: NodeProcess, other: NodeProcess, canary: Canary, name: str) -> None:
    with ExitStack() as stack:
        ways: dict[str, Callable[[], None]] = {
            "quiet": lambda: time.sleep(SECONDS),
            "another node attacked": stack.enter_context(Attacker(name, other, SECONDS)).run,
        }
        if name in MODULES:
            sound = SOUND_AND_LARGE if name == LARGE_OUTPUT else SOUND
            ways["a sound module"] = stack.enter_context(Attacker(sound, node, SECONDS)).run
        if name == HALF_FRAMES:
            ways["a busy client"] = stack.enter_context(Attacker(BUSY_STREAMS, node, SECONDS)).run
        ways["attacked"] = stack.enter_context(Attacker(name, node, SECONDS)).run
        found: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, work in ways.items():
                found[way].append(_p99_during(canary, work) * 1000)
    medians = {way: statistics.median(each) for way, each in found.items()}
    attacked = medians.pop("attacked")
    others = ", ".join(f"{way} {each:.1f} ms ({attacked / each:.2f}x)" for way, each in medians.items())
    print(f"[load {os.getloadavg()[0]:.1f}] {name}: p99 {attacked:.1f} ms; {others}", flush=True)
    assert attacked <= RATIO_MAX * max(medians.values())


def _p99_during(canary: Canary, work: Callable[[], None]) -> float:
    begun = len(canary.times_s)
    work()
    times = sorted(canary.times_s[begun:])
    return times[int(len(times) * 0.99)]
