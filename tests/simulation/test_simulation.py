"""The real node under virtual time, with faults: every promise holds for every seed, and one seed is one run.

A seed that fails here is replayed by `make simulate SEED=...`.
"""

import os
import subprocess
import sys

import pytest
from tests.simulation.mutants import MUTANTS
from tests.simulation.simulation import simulate

SEEDS = 200
PER_TEST = 10
MUTANT_SEEDS = 100
CAUGHT_BY = {
    "ack-before-flush": 2,
    "fence-not-looked-for": 13,
    "unflushed-is-readable": 14,
    "object-acked-by-the-wal": 14,
    "producers-forgotten": 0,
    "transactions-forgotten": 0,
    "markers-dropped": 0,
    "commit-not-fenced": 27,
    "offset-given-twice": 0,
    "ring-trimmed-too-far": 0,
    "sweeper-does-not-look": 0,
    "manifests-not-written": 0,
    "ceiling-not-persisted": 14,
    "checkpoint-not-flushed": 10,
}
"""A seed for each mutant that notices it; `docs/development/simulation.md` has the table."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_every_promise_holds_under_every_seed(first: int) -> None:
    results = [simulate(seed) for seed in range(first, first + PER_TEST)]
    assert all(result.acked for result in results)
    failed = [result for result in results if result.violations]
    assert not failed, "\n".join(map(str, failed))


def test_the_same_seed_is_the_same_run_in_every_process() -> None:
    """Whatever the order of sets is: what differs between two runs could not be replayed."""
    script = "from tests.simulation.simulation import simulate; print([simulate(seed).digest for seed in (3, 14)])"
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": "src:."},
            check=True,
            capture_output=True,
            text=True,
            timeout=240,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_broken_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the seed that noticed it last, or, since every change of the node makes other runs, by one of the first."""
    MUTANTS[name](monkeypatch)
    assert any(simulate(seed).violations for seed in (CAUGHT_BY[name], *range(MUTANT_SEEDS)))
