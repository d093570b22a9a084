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
from tests.simulation.simulation import Result, shortened, simulate

_CHUNK = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate")
    parser.add_argument("--seed", type=int, help="replay this one and print its trace")
    parser.add_argument("--seeds", type=int, default=200, help="how many to play")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--mutant", choices=[*MUTANTS, "all"], help="break this rule, and stop at the seed that notices"
    )
    given = parser.parse_args()
    if given.seed is not None:
        return _replay(given.seed, given.mutant)
    if given.mutant is None:
        return _play_many(range(given.first, given.first + given.seeds), given.jobs)
    names = list(MUTANTS) if given.mutant == "all" else [given.mutant]
    return sum(not _is_caught(name, range(given.first, given.first + given.seeds), given.jobs) for name in names)


def play(seed: int, mutant: str | None = None) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        if mutant is not None:
            MUTANTS[mutant](patch)
        return simulate(seed)


def _replay(seed: int, mutant: str | None) -> int:
    result = play(seed, mutant)
    print("\n".join(map(shortened, result.trace)))
    print(result)
    return bool(result.violations)


def _play_many(seeds: range, jobs: int) -> int:
    started_s = time.monotonic()
    count = failed = 0
    cpu_s = virtual_s = 0.0
    for result in _played(seeds, jobs, None):
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


def _is_caught(mutant: str, seeds: range, jobs: int) -> bool:
    for result in _played(seeds, jobs, mutant):
        if result.violations:
            print(f"{mutant}: seed {result.options.seed}: {shortened(result.violations[0])[-300:]}", flush=True)
            return True
    print(f"{mutant}: not caught by {len(seeds)} seeds", flush=True)
    return False


def _played(seeds: range, jobs: int, mutant: str | None) -> Iterator[Result]:
    """In order."""
    if jobs == 1:
        yield from (play(seed, mutant) for seed in seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(partial(play, mutant=mutant), seeds, chunksize=_CHUNK)


if __name__ == "__main__":
    sys.exit(main())
