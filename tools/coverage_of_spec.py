"""Which acceptance lines of docs/spec/requirements.md no passing test proves, seed by seed.

A line that asks for several nodes is proven by tests that run several (those in a folder `cluster`); what one node alone has shown
of it is called "one node". Runs the suite first, unless told --from-last-run. Says what it finds and always exits 0: a gap is a fact to know,
the failing test that shows it is what fails a build.
"""

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "docs" / "spec" / "requirements.md"
RECORD = ROOT / ".cache" / "spec-coverage.json"
SUITE = ["tests", "-m", "not long", "-n", "2", "--dist", "loadgroup"]

_LINE = re.compile(r"^- \*\*([RX](\d+)\.\d+)\*\* (.*)$", re.MULTILINE)
_SEVERAL_NODES = re.compile(
    r"\b(replicas?|replication|replicated?|followers?|in-sync|ISR|quorum|raft|voters?|brokers|nodes|failover|fail-over|"
    r"re-?election|elected|election|gossip|rolling|membership|controllers?)\b",
    re.IGNORECASE,
)
_SEED = re.compile(r"^# R(\d+) — (.*)$", re.MULTILINE)


def requirements() -> dict[str, str]:
    """Every acceptance line by its id."""
    return {match[1]: match[3] for match in _LINE.finditer(REQUIREMENTS.read_text())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from-last-run", action="store_true", help="read what the last pytest run recorded")
    parser.add_argument("--short", action="store_true", help="ids only, without their text")
    arguments = parser.parse_args()
    if not arguments.from_last_run:
        RECORD.unlink(missing_ok=True)
        subprocess.run([sys.executable, "-m", "pytest", *SUITE], cwd=ROOT, check=False)
    if not RECORD.exists():
        print("nothing recorded: no test with a requirement id has run")
        return 0
    record = json.loads(RECORD.read_text())
    print(f"from a run of: pytest {' '.join(record['arguments'])}")
    report(record, is_short=arguments.short)
    return 0


def report(record: dict[str, dict[str, list[str]]], *, is_short: bool) -> None:
    lines = requirements()
    titles = dict(_SEED.findall(REQUIREMENTS.read_text()))
    seeds: dict[str, list[str]] = defaultdict(list)
    for name in lines:
        seeds[name[1:].partition(".")[0]].append(name)
    proven_total = 0
    for seed, names in seeds.items():
        # A line that one test proves and another disproves is not proven.
        proven = [name for name in names if _is_proven(name, lines[name], record)]
        proven_total += len(proven)
        print(f"\n{titles.get(seed, seed)}: {len(proven)} of {len(names)} proven")
        for name in names:
            if name not in proven:
                print(f"  {name:<8}{_why(name, record):<12}{'' if is_short else lines[name]}".rstrip())
    print(f"\nall: {proven_total} of {len(lines)} proven")


def _is_proven(name: str, line: str, record: dict[str, dict[str, list[str]]]) -> bool:
    tests = record["passed"].get(name, [])
    if not tests or name in record["failed"]:
        return False
    return not _SEVERAL_NODES.search(line) or any("/cluster/" in test for test in tests)


def _why(name: str, record: dict[str, dict[str, list[str]]]) -> str:
    if name in record["failed"]:
        return "FAILED"
    if name in record["passed"]:
        return "one node"
    return "skipped" if name in record["skipped"] else "no test"


if __name__ == "__main__":
    sys.exit(main())
