"""What of the differences of a run is not known to differ, and a trail of all that was asked and answered."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.support.same_as_kafka.evidence import Evidence
from tests.support.same_as_kafka.known import known_as
from tests.support.same_as_kafka.pairing import Pair
from tests.support.same_as_kafka.running import Step

_SHOWN_MAX = 2500


def judge(pair: Pair, seed: int, steps: Iterable[tuple[Step, object]], trail: Path, counts: Counter[str]) -> list[str]:
    """Each step comes with what shows it to a reader. `counts` learns how many there were, and of each kind."""
    unknown: list[str] = []
    trail.parent.mkdir(parents=True, exist_ok=True)
    with trail.open("w") as kept:
        for step, shown in steps:
            counts["steps"] += 1
            print(shown, file=kept)
            for found in step.differences:
                row = known_as(found, Evidence(step.request, step.version, step.before, pair.theirs))
                counts[row or "unknown"] += 1
                print(f"  {row or 'UNKNOWN'}: {found}", file=kept)
                if row is None:
                    unknown.append(f"seed {seed}, step {step.number}: {found}\n  {shown}"[:_SHOWN_MAX])
    print(f"seed {seed}: {dict(counts)}")
    return unknown
