"""Rules of the house that no linter knows."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "docs" / "spec"
TEXT_SUFFIXES = {".py", ".md", ".toml", ".proto", ".c", ".h", ".html", ".css", ".yml", ".yaml", ".txt", ""}
FOLDERS = ("src", "tests", "tools", "docs", "changes", "bench", ".ci")

NOUNLESS = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager", "managers"}
GENERATED = (
    "src/headrace/wire/kafka/messages/*.py",
    "src/headrace/wire/coordination/messages/*_*[a-z].py",
    "docs/adr/fingerprints.txt",
    "src/**/*_pb2.py",
    "src/**/*_pb2.pyi",
    "docs/reference/*.md",
    "docs/reference/*.proto",
    "docs/adr/README.md",
)
# Written apart, so that this file passes its own check.
MACHINE_PATHS = re.compile("|".join(("/wo" + "rk/", "/ro" + "ot/", "/tmp/head" + "race")))
UNFINISHED = re.compile("|".join(rf"\b{word}\b" for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X")))


def python(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def written() -> Iterator[tuple[Path, str]]:
    """Every text file that people write, with its text."""
    top = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]  # a file in a worktree
    below = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in sorted((*top, *below)):
        if path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts and "golden" not in path.parts:
            try:
                yield path, path.read_text()
            except UnicodeDecodeError:
                continue


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))


def called_name(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def shown(offenders: Iterable[Path]) -> list[str]:
    return sorted({str(path.relative_to(ROOT)) for path in offenders})


def test_every_module_has_a_noun_for_a_name() -> None:
    assert not shown(path for path in python("src", "tests", "tools") if path.stem in NOUNLESS)
    assert not shown(path for path in (ROOT / "src").rglob("*") if path.is_dir() and path.name in NOUNLESS)


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    assert not shown(path for path, text in written() if MACHINE_PATHS.search(text))


def test_nothing_is_left_to_do() -> None:
    assert not shown(path for path, text in written() if SPEC not in path.parents and UNFINISHED.search(text))


def test_unit_tests_do_not_sleep() -> None:
    def is_sleep(call: ast.Call) -> bool:
        # asyncio.sleep(0) only lets others run.
        is_yield = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
        return called_name(call) == "sleep" and not is_yield

    assert not shown(path for path in python("tests/unit") if any(map(is_sleep, calls(path))))


def test_the_product_does_not_print() -> None:
    def is_print(call: ast.Call) -> bool:
        return isinstance(call.func, ast.Name) and call.func.id == "print"

    assert not shown(path for path in python("src") if any(map(is_print, calls(path))))


def test_every_module_says_what_it_is() -> None:
    def is_silent(path: Path) -> bool:
        tree = ast.parse(path.read_text())
        return bool(tree.body) and ast.get_docstring(tree) is None and not path.name.endswith("_pb2.py")

    assert not shown(path for path in python("src", "tools") if is_silent(path))


def test_requirement_ids_in_tests_exist() -> None:
    text = (SPEC / "requirements.md").read_text() + (SPEC / "resolutions.md").read_text()
    known = set(re.findall(r"^- \*\*([RX]\d+\.\d+)\*\*", text, re.MULTILINE))
    known |= set(re.findall(r"^\| (C\d+) \|", text, re.MULTILINE))
    assert known, "the lists have changed their form"
    assert not _unknown_ids("requirement", known)


def test_trap_numbers_in_tests_exist() -> None:
    text = (SPEC / "kafka-compat.md").read_text()
    known = set(map(int, re.findall(r"^\| (\d+) \|", text, re.MULTILINE)))
    assert known, "the list has changed its form"
    assert not _unknown_ids("trap", known)


def test_generated_files_say_so() -> None:
    def is_marked(path: Path) -> bool:
        opening = path.read_text()[:400].lower()
        return "generated" in opening and "do not edit" in opening

    generated = [path for pattern in GENERATED for path in ROOT.glob(pattern)]
    # mypy-protobuf writes its own words.
    assert not shown(path for path in generated if not is_marked(path) and "@generated" not in path.read_text()[:400])


def test_changes_say_of_which_kind_they_are() -> None:
    pattern = re.compile(r"[a-z0-9-]+\.(added|changed|fixed|removed)\.md")
    assert not shown(path for path in (ROOT / "changes").iterdir() if not pattern.fullmatch(path.name))


def test_failure_modes_name_tests_that_exist() -> None:
    named = re.findall(r"`(tests/[^`:]+)::(\w+)`", (ROOT / "docs" / "failure-modes.md").read_text())
    assert named
    gone = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).exists() or f"def {test}(" not in (ROOT / path).read_text()
    ]
    assert not gone


def test_links_between_documents_lead_somewhere() -> None:
    documents = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in documents
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert not broken


def test_the_lock_file_names_no_registry() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text()


def _unknown_ids(marker: str, known: set[str] | set[int]) -> list[str]:
    return sorted(
        f"{path.relative_to(ROOT)}: {argument.value!r}"
        for path in python("tests")
        for call in calls(path)
        if called_name(call) == marker
        for argument in call.args
        if isinstance(argument, ast.Constant) and argument.value not in known
    )


def test_chance_has_one_source() -> None:
    """What a node draws elsewhere a simulated run could not repeat. Clients, benchmarks and Spark jobs are never simulated."""
    alone = ("chance.py", "bench", "cli", "clients", "pipeline")
    drawn = re.compile(r"\b(import (random|secrets)|from (random|secrets) import|uuid[14]\b|urandom)\b")
    folder = ROOT / "src" / "headrace"
    nodes = [path for path in python("src/headrace") if path.relative_to(folder).parts[0] not in alone]
    assert not shown(path for path in nodes if drawn.search(path.read_text()))
