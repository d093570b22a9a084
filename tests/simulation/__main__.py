"""Many seeds on all cores, or one with its trace: what `make simulate` runs.

`python -m tests.simulation --seeds 1000`, `--seed 7`, `--mutant ack-before-flush --seeds 2000`.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from functools import partial

import pytest
from tests.simulation.loop import BEGINNING_S
from tests.simulation.mutants import MUTANTS
from tests.simulation.shared_mutants import SHARED_MUTANTS
from tests.simulation.shared_simulation import simulate_shared
from tests.simulation.simulation import Result, shortened, simulate

_CHUNK = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate")
    parser.add_argument("--seed", type=int, help="replay this one and print its trace")
    parser.add_argument("--seeds", type=int, default=200, help="how many to play")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--shared", action="store_true", help="three brokers and two controllers instead of one node")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--mutant",
        choices=[*MUTANTS, *SHARED_MUTANTS, "all"],
        help="break this rule, and stop at the seed that notices",
    )
    given = parser.parse_args()
    if given.seed is not None:
        return _replay(given.seed, given.mutant, is_shared=given.shared)
    seeds = range(given.first, given.first + given.seeds)
    if given.mutant is None:
        return _play_many(seeds, given.jobs, is_shared=given.shared)
    names = list(SHARED_MUTANTS if given.shared else MUTANTS) if given.mutant == "all" else [given.mutant]
    return sum(not _is_caught(name, seeds, given.jobs, is_shared=given.shared) for name in names)


def play(seed: int, mutant: str | None = None, *, is_shared: bool = False) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        if mutant is not None:
            (SHARED_MUTANTS if is_shared else MUTANTS)[mutant](patch)
        return simulate_shared(seed) if is_shared else simulate(seed)


def _replay(seed: int, mutant: str | None, *, is_shared: bool) -> int:
    result = play(seed, mutant, is_shared=is_shared)
    print("\n".join(map(shortened, result.trace)))
    print(result)
    return bool(result.violations)


def _play_many(seeds: range, jobs: int, *, is_shared: bool) -> int:
    started_s = time.monotonic()
    count = failed = 0
    cpu_s = virtual_s = 0.0
    for result in _played(seeds, jobs, None, is_shared=is_shared):
        count += 1
        cpu_s += result.cpu_s
        virtual_s += result.virtual_s - BEGINNING_S
        if result.violations:
            failed += 1
            print(result, flush=True)
    took_s = time.monotonic() - started_s
    print(
        f"{count} seeds, {failed} failed; {count / took_s:.2f} seeds/s, {cpu_s / count:.2f} s of CPU and "
        f"{virtual_s / count:.0f} virtual seconds each"
    )
    return bool(failed)


def _is_caught(mutant: str, seeds: range, jobs: int, *, is_shared: bool) -> bool:
    for result in _played(seeds, jobs, mutant, is_shared=is_shared):
        if result.violations:
            print(f"{mutant}: seed {result.options.seed}: {shortened(result.violations[0])[-300:]}", flush=True)
            return True
    print(f"{mutant}: not caught by {len(seeds)} seeds", flush=True)
    return False


def _played(seeds: range, jobs: int, mutant: str | None, *, is_shared: bool) -> Iterator[Result]:
    """In order."""
    if jobs == 1:
        yield from (play(seed, mutant, is_shared=is_shared) for seed in seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(partial(play, mutant=mutant, is_shared=is_shared), seeds, chunksize=_CHUNK)


if __name__ == "__main__":
    sys.exit(main())
