"""What docs/architecture.md promises of the code, where no import contract can see it."""

import ast
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from headrace.config.keys import all_keys
from headrace.config.topic_defaults import TOPIC_KEYS

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "headrace"

ENGINE = ("admin", "blob", "broker", "control", "doors", "link", "log", "tier")
"""The packages whose parts a node is made of. The pipeline is a process of its own, and a command line is nobody's part."""
PROCESSES = {"headrace.tier.search.worker"}
"""Modules that run as processes of their own, and wire what they need."""
VALUE_BASES = ("Struct", "NamedTuple", "Enum", "Protocol", "Error", "Exception", "Rejected", "Unavailable", "Fault")
MADE_BY_OTHERS = {
    "headrace.aligned.AlignedBuffer": "memory",
    "headrace.aligned.ReusedPages": "memory",
    "headrace.file_range.FileRange": "memory, in a file",
    "headrace.file_range.OpenFile": "memory, in a file",
    "headrace.disk.OsFile": "an open file",
    "headrace.records.builder.BatchBuilder": "a batch in the making",
    "headrace.broker.deferred.Deferred": "a result",
    "headrace.broker.slices.Turns": "the budget of one call, or of one page with several",
    "headrace.broker.access.scram.Challenge": "one login of one connection",
    "headrace.broker.groups.consumer.pattern.NamePattern": "a value",
    "headrace.control.security.SecurityEntries": "the metastore's entries about users and rights, as their one reader sees them",
    "headrace.log.producers.Producers": "what is known of producers, read from a checkpoint of the bucket",
    "headrace.log.transactions.TransactionIndex": "the same of transactions",
    "headrace.log.partition.PartitionLog": "the broker hosts partitions as topics come and go",
    "headrace.quic.peers.Quic": "one connection, of the QUIC door or of a client",
    "headrace.quic.sockets.DatagramSocket": "its socket",
    "headrace.log.spill.spiller.Spiller": "one task of the tier uses the log's spill",
}
"""Classes with state that another package than their own or `node` may make, and what they are."""


def module_name(path: Path) -> str:
    return ".".join(("headrace", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


@cache
def trees() -> dict[str, ast.Module]:
    return {module_name(path): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def package_of(name: str) -> str:
    return [*name.split("."), ""][1]


@cache
def parts() -> frozenset[str]:
    """Every class of the engine that is not a value: it holds state, and somebody must own it."""
    found = set()
    for module, tree in trees().items():
        for node in tree.body:
            if not isinstance(node, ast.ClassDef) or package_of(module) in ("wire", "errors", "clock"):
                continue
            bases = [ast.unparse(base) for base in node.bases]
            is_frozen = any("frozen=True" in ast.unparse(each) for each in node.decorator_list)
            if not is_frozen and not any(base.endswith(VALUE_BASES) for base in bases):
                found.add(f"{module}.{node.name}")
    return frozenset(found)


def imported(tree: ast.Module) -> dict[str, str]:
    """Names of this module that come from others of ours, and what they are there."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace")
        for alias in node.names
    }


def made_in(module: str) -> Iterator[str]:
    """Parts that `module` makes by calling their class."""
    names = imported(trees()[module])
    calls = [node for node in ast.walk(trees()[module]) if isinstance(node, ast.Call)]
    for call in calls:
        made = ""
        match call.func:
            case ast.Name(id=name):
                made = names.get(name, "")
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                made = f"{names.get(name, '')}.{attribute}"
        if made in parts():
            yield made


def test_only_the_node_wires_parts_together() -> None:
    """A part that another package makes for itself has settings, tasks and files that the node does not know of."""
    wired = {
        f"{module} makes {made}"
        for module in trees()
        if package_of(module) in ENGINE and module not in PROCESSES
        for made in made_in(module)
        if package_of(made) != package_of(module) and made not in MADE_BY_OTHERS
    }
    assert not sorted(wired)


def test_what_others_may_make_is_made_by_others() -> None:
    """An exception that nobody needs any more is one that nobody thinks about."""
    made = {
        made for module in trees() for made in made_in(module) if package_of(module) not in ("node", package_of(made))
    }
    assert not sorted(MADE_BY_OTHERS.keys() - made)


def imported_modules(module: str) -> Iterator[str]:
    for node in ast.walk(trees()[module]):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_of_the_tier_the_pipeline_knows_the_formats_alone() -> None:
    known = {
        name
        for module in trees()
        if package_of(module) == "pipeline"
        for name in imported_modules(module)
        if name.startswith("headrace.tier")
    }
    assert known
    assert not {name for name in known if not name.startswith("headrace.tier.format")}


def test_every_setting_is_read_by_somebody() -> None:
    """A setting that nothing reads is a promise to whoever sets it."""
    read = {
        node.attr
        for module, tree in trees().items()
        if module not in ("headrace.config.keys", "headrace.config.settings")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    handed_on = set(TOPIC_KEYS)  # as the config of topics, by name
    assert not sorted(key.name for key in all_keys().values() if key.field not in read | handed_on)


def test_a_decision_is_superseded_and_never_rewritten() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "gen_adr_fingerprints.py"))
    recorded = tool["recorded"]()
    found = {path.name: tool["fingerprint"](path.read_text()) for path in tool["records"]()}
    assert found == recorded, (
        "write a new decision that supersedes the old one, and say so in the old one's status line; `make gen` takes new ones in"
    )


def test_line_breaks_and_status_of_a_decision_may_change_and_its_words_may_not() -> None:
    fingerprint = runpy.run_path(str(ROOT / "tools" / "gen_adr_fingerprints.py"))["fingerprint"]
    text = "# 0001: A\n\n**Status**: accepted\n\n## Decision\n\nWe do one\nthing.\n"
    assert fingerprint(text) == fingerprint(
        text.replace("one\nthing", "one thing").replace("accepted", "superseded by 0002")
    )
    assert fingerprint(text) != fingerprint(text.replace("one", "another"))
