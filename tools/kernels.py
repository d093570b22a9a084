"""Keeps the C kernels honest: that each is built, that a test notices each mutant, that none leaves its memory.

A fast path that forgets a check is not slower, and every test that does not look for that check stays green. So each mutant
below takes one check, limit or change out of a kernel, and the kernel's tests must fail with it (`make mutants`). The same
tests, and the fuzzers, run on kernels that were built with sanitizers (`make sanitized`, `make fuzz-kernels`). What is broken
or built anew is a copy: the working tree and its compiled modules stay as they are.
"""

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
APPEND: Final = "headrace/log/_append.c"
PRODUCE: Final = "headrace/doors/kafka/_produce.c"
TESTS: Final = {
    APPEND: ["tests/unit/log/test_common_append.py"],
    PRODUCE: ["tests/unit/doors/kafka/test_common_produce.py"],
}


class Mutant(NamedTuple):
    kernel: str
    before: str
    after: str


MUTANTS: Final = [
    # The append: what it may take.
    Mutant(APPEND, "size > plain_size_max || ", ""),
    Mutant(APPEND, "size > plain_size_max || ", "plain_size_max < 0 || "),
    Mutant(APPEND, "|| !is_in_time(&batch, now_ms)", ""),
    Mutant(APPEND, "PLAIN_AHEAD_MS = 3600000", "PLAIN_AHEAD_MS = 3600001"),
    Mutant(APPEND, "data[MAGIC_AT] != MAGIC || ", ""),
    Mutant(APPEND, " || read_int(data + BATCH_LENGTH_AT, 4) + LENGTH_OVERHEAD != size", ""),
    Mutant(APPEND, "(TRANSACTIONAL | CONTROL)", "CONTROL"),
    Mutant(APPEND, "(TRANSACTIONAL | CONTROL)", "TRANSACTIONAL"),
    Mutant(APPEND, " || codec > CODEC_LAST", ""),
    Mutant(APPEND, "count < 1 || ", ""),
    Mutant(APPEND, "read_int(data + LAST_OFFSET_DELTA_AT, 4) != count - 1 ||", ""),
    Mutant(APPEND, "(codec ? 1 : count * RECORD_SIZE_MIN) > size - HEADER_SIZE", "0"),
    Mutant(APPEND, " || !has_whole_records(data, size, &batch)", ""),
    Mutant(APPEND, " || walked.offset_delta != nth", ""),
    Mutant(APPEND, "return batch->is_compressed || at == end;", "return 1;"),
    Mutant(APPEND, "return is_good && crc ==", "return 1 || crc =="),
    Mutant(APPEND, " || slot_number(&producer_layout, producer, R_EPOCH, &is_good) != batch->epoch", ""),
    Mutant(APPEND, "== batch->base_sequence) {\n                is_good = 0;", "== batch->base_sequence) {"),
    Mutant(APPEND, "((last_sequence + 1) & 0x7FFFFFFF) == batch->base_sequence", "1"),
    Mutant(APPEND, "place->base > ceiling - margin - batch->count", "place->base > ceiling"),
    Mutant(APPEND, "!is_epoch_noted(partition, place->epoch) ||", ""),
    Mutant(APPEND, " || slot(&wal_layout, wal, W_REFUSAL) != Py_None", ""),
    Mutant(APPEND, "size <= place->room - place->payload_size", "1"),
    Mutant(APPEND, "memory->len - start >= size", "1"),
    Mutant(APPEND, "return object != NULL && Py_TYPE(object) == layout->type;", "return object != NULL;"),
    # The append: what it must change.
    Mutant(APPEND, "put_int(copies[i] + LEADER_EPOCH_AT, place->epoch, 4);", ""),
    Mutant(APPEND, "put_int(copies[i], place->base, 8);", ""),
    Mutant(APPEND, "set_slot(&wal_layout, place->wal, W_UNFLUSHED, numbers[N_UNFLUSHED]);", ""),
    Mutant(APPEND, "set_slot(&producer_layout, producer, R_SEEN, numbers[N_NOW]);", ""),
    Mutant(APPEND, "set_slot(&index_layout, index, I_TIMESTAMP_HIGH, numbers[N_NEWEST]);", ""),
    Mutant(APPEND, "[N_ROOM] = place->room - ENTRY_SIZE", "[N_ROOM] = place->room"),
    Mutant(APPEND, "(waiter != Py_None && wait_for(group, waiter) < 0) || ", ""),
    # The request: what it may serve.
    Mutant(PRODUCE, " || PyObject_Size(owed) >= SLOTS_MAX", ""),
    Mutant(PRODUCE, "PyObject_Size(owed) >= SLOTS_MAX", "PyObject_Size(owed) > SLOTS_MAX"),
    Mutant(PRODUCE, "transactional_id != -1 || ", ""),
    Mutant(PRODUCE, "(acks != 1 && acks != -1)", "0"),
    Mutant(PRODUCE, "row->index < 0 || ", ""),
    Mutant(PRODUCE, " || row->index >= PyList_GET_SIZE(partitions)", ""),
    Mutant(PRODUCE, "!is_ascii(client_id, client_id_size)", "0"),
    Mutant(
        PRODUCE, "reader->is_flexible && take_int(reader, 1) != 0", "reader->is_flexible && take_int(reader, 1) < 0"
    ),
    Mutant(PRODUCE, "reader->end - reader->at < size", "reader->end - reader->at < size - 1"),
    Mutant(PRODUCE, "    if (served > 0) {\n        served = has_room(self, &request, size);\n    }\n", ""),
    Mutant(PRODUCE, "request->version > LAST_VERSION", "0"),
    # The request: what it must answer.
    Mutant(PRODUCE, "if (error != Py_None && self->error == NULL)", "if (0)"),
    Mutant(PRODUCE, "if (self->pending || self->answer == NULL)", "if (self->answer == NULL)"),
    Mutant(PRODUCE, "if (self->chunks == Py_None) {", "if (1) {"),
    Mutant(PRODUCE, "reply->expires_ms = now_ms + request->timeout_ms;", "reply->expires_ms = now_ms;"),
    Mutant(PRODUCE, "count_up(self->produce, P_RECORDS, record_count) == 0 &&", ""),
    Mutant(PRODUCE, "            leave_unanswered(reply);\n", ""),
]


KERNEL_TESTS: Final = [
    "tests/unit/log/test_common_append.py",
    "tests/unit/log/wal",
    "tests/unit/records/test_stretch.py",
    "tests/unit/records/test_walk.py",
    "tests/unit/doors/kafka/test_common_produce.py",
    "tests/unit/doors/test_sending.py",
    "tests/unit/blob/test_through.py",
    "tests/unit/pipeline/decoder/test_kernels.py",
    "tests/fuzz/test_kernels.py",
]
STUCK_SECONDS: Final = 120
"""A mutant may wait for ever. Its tests take ten seconds, and a minute on a busy machine."""
SANITIZERS: Final = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]


def main() -> int:
    """`built`: each kernel is there. `mutants`: a test notices each. `sanitized [tests]`: run them with sanitizers."""
    match sys.argv[1:]:
        case ["built"]:
            return _say_what_is_missing()
        case ["mutants", *wanted]:
            return _mutate("".join(wanted))
        case ["sanitized", *tests]:
            return _run_sanitized(tests or KERNEL_TESTS)
        case _:
            print(main.__doc__)
            return 2


def _sources() -> list[str]:
    """Of the package, relative to `src`."""
    return sorted(str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "headrace").rglob("_*.c"))


def _files_of(source: Path) -> list[Path]:
    """What a kernel is made of: its source, the headers beside it, and the one that all share."""
    return [source, *sorted(source.parent.glob("*.h")), _tree_of(source) / "headrace" / "kernel.h"]


def _tree_of(source: Path) -> Path:
    return next(folder.parent for folder in source.parents if folder.name == "headrace")


# -- is each built? ----------------------------------------------------------------------------------------------------


def _say_what_is_missing() -> int:
    """`setup.py` takes a failed build for a machine without a compiler; here it is a failure."""
    missing = 0
    for source in _sources():
        module = str(Path(source).with_suffix("")).replace("/", ".")
        target = (ROOT / "src" / source).with_suffix(_suffix())
        try:
            loaded = importlib.import_module(module).__file__
            newest = max(path.stat().st_mtime for path in _files_of(ROOT / "src" / source))
            reason = "" if loaded == str(target) and target.stat().st_mtime >= newest else "older than its source"
        except ImportError as error:
            reason = str(error)
        missing += bool(reason)
        print(f"{module}: {reason or 'built'}")
    return 1 if missing else 0


# -- does a test notice each mutant? -------------------------------------------------------------------------------------


def _mutate(wanted: str) -> int:
    survivors = []
    with _copied_tree() as tree:
        for kernel, tests in TESTS.items():
            _build(tree / kernel)
            if wanted in kernel and not _passes(tree, tests):
                raise SystemExit(f"the tests of {kernel} fail before anything is broken")
        for number, mutant in enumerate(MUTANTS):
            if wanted in mutant.kernel + mutant.before and not _is_noticed(tree, mutant):
                survivors.append(mutant)
                print(f"SURVIVED {number}: {mutant.kernel}: {mutant.before!r} -> {mutant.after!r}", flush=True)
    print(f"{len(MUTANTS)} mutants, {len(survivors)} survived")
    return 1 if survivors else 0


def _is_noticed(tree: Path, mutant: Mutant) -> bool:
    source = tree / mutant.kernel
    originals = {path: path.read_text() for path in _files_of(source)}
    places = [path for path, text in originals.items() if mutant.before in text]
    count = sum(text.count(mutant.before) for text in originals.values())
    if count != 1:
        raise SystemExit(f"{mutant.kernel}: {mutant.before!r} is there {count} times, not once")
    (place,) = places
    place.write_text(originals[place].replace(mutant.before, mutant.after))
    try:
        _build(source)
        return not _passes(tree, TESTS[mutant.kernel])
    finally:
        place.write_text(originals[place])
        _build(source)


def _passes(tree: Path, tests: list[str]) -> bool:
    try:
        # One failure is enough: looking for the smallest example of it would take most of the time.
        options = ["-x", "--hypothesis-profile=unshrunk", *tests]
        return _pytest(tree, options, {}, is_quiet=True, seconds_max=STUCK_SECONDS) == 0
    except subprocess.TimeoutExpired:
        print(f"stuck for {STUCK_SECONDS} s, which counts as noticed", flush=True)
        return False


# -- do they stay within their memory? -------------------------------------------------------------------------------------


def _run_sanitized(tests: list[str]) -> int:
    with _copied_tree() as tree:
        for source in _sources():
            _build(tree / source, SANITIZERS)
        runtimes = [_compiler(f"-print-file-name={name}") for name in ("libasan.so", "libubsan.so")]
        environment = {
            "LD_PRELOAD": " ".join(runtimes),
            # The interpreter never frees what it has interned; leaks are for tests that count objects.
            # What was freed is watched for a while, in so much memory.
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:quarantine_size_mb=64",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            # Memory of Python's objects comes from malloc, so that what is written past one is seen.
            "PYTHONMALLOC": "malloc",
            **{name: value for name, value in os.environ.items() if name.startswith("HEADRACE_FUZZ_")},
        }
        return _pytest(tree, tests, environment, is_quiet=False)


# -- a tree to break -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _copied_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headrace-kernels-") as directory:
        tree = Path(directory) / "src"
        shutil.copytree(ROOT / "src" / "headrace", tree / "headrace", ignore=shutil.ignore_patterns("__pycache__"))
        yield tree


def _build(source: Path, flags: Sequence[str] = ()) -> None:
    target = source.with_suffix(_suffix())
    target.unlink(missing_ok=True)
    include = sysconfig.get_paths()["include"]
    options = ["-O1", "-w", "-shared", "-fPIC", *flags, f"-I{include}"]
    subprocess.run(["cc", *options, str(source), "-o", str(target)], check=True)


def _suffix() -> str:
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


def _compiler(option: str) -> str:
    return subprocess.run(["cc", option], check=True, capture_output=True, text=True).stdout.strip()


def _pytest(
    tree: Path, arguments: list[str], environment: dict[str, str], *, is_quiet: bool, seconds_max: float = 3600
) -> int:
    """The tests of this tree on the kernels of that one."""
    options = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-o", f"pythonpath={tree} {ROOT}"]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tree), "PYTHONPATH": str(tree), **environment}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=is_quiet, timeout=seconds_max, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
