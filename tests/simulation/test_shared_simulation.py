"""Three brokers and two controllers under virtual time, with faults: every promise holds for every seed.

A seed that fails here is replayed by `make simulate SHARED=1 SEED=...`.
"""

import pytest
from tests.simulation.shared_mutants import SHARED_MUTANTS
from tests.simulation.shared_simulation import simulate_shared

SEEDS = 40
PER_TEST = 10
CAUGHT_BY = {"producers-not-asked-for": 10, "keeper-does-not-look": 0}
"""A seed for each mutant that notices it. The others are noticed by no seed of the first hundred yet."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_every_promise_of_several_brokers_holds_under_every_seed(first: int) -> None:
    results = [simulate_shared(seed) for seed in range(first, first + PER_TEST)]
    failed = [result for result in results if result.violations]
    assert not failed, "\n".join(map(str, failed))
    assert all(result.acked for result in results)


def test_the_same_seed_is_the_same_run() -> None:
    assert simulate_shared(3).digest == simulate_shared(3).digest


@pytest.mark.parametrize("mutant", CAUGHT_BY)
def test_a_broken_rule_of_several_brokers_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    SHARED_MUTANTS[mutant](monkeypatch)
    assert simulate_shared(CAUGHT_BY[mutant]).violations
