"""`headrace wasm`, and the walk of docs/transforms.md as it stands; the templates build what they say."""

import ctypes
import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import wasm
from tests.support.node import NodeProcess

from headrace.errors import Rejected
from headrace.records.batch import HEADER_SIZE
from headrace.records.builder import build_batch
from headrace.records.record import NewRecord
from headrace.records.walk import walk_records
from headrace.transforms.projects import find_rust

PAGE = Path(__file__).parents[2] / "docs" / "transforms.md"


def run(node: NodeProcess, script: str, directory: Path) -> str:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HEADRACE_BOOTSTRAP": node.kafka,
        "HEADRACE_API": f"http://{node.endpoints['admin']}",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=directory, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_walk_works_as_it_stands(node: NodeProcess, tmp_path: Path) -> None:
    section = PAGE.read_text().split("## A walk")[1].split("\n## ")[0]
    blocks = re.findall(r"```(sh)?\n(.*?)```", section, re.DOTALL)
    scripts = [text for kind, text in blocks if kind]
    (shown,) = [text for kind, text in blocks if not kind]
    said = [run(node, script, tmp_path) for script in scripts]
    assert len(said) == 5
    assert said[2] == shown, "what the page shows is what was tried"
    assert "coffee\ntea\nCOCOA\n" in said[3]
    assert "orders: no module, before shout_v1" in said[4]


def test_what_is_tried_writes_nothing_and_says_what_fails(node: NodeProcess, topic: str, tmp_path: Path) -> None:
    (tmp_path / "traps.wasm").write_bytes(wasm.TRAP_ON_X)
    (tmp_path / "drops.wasm").write_bytes(wasm.DROP_X)
    run(node, f"printf 'a\\nx\\nb\\n' | headrace produce {topic} --partition 0", tmp_path)
    found = json.loads(run(node, f"headrace wasm try drops.wasm --topic {topic} --json", tmp_path))
    assert (found["same"], found["dropped"]) == (2, 1)
    found = json.loads(run(node, f"headrace wasm try traps.wasm --topic {topic} --last 2 --json", tmp_path))
    assert found["failed"] == 2
    assert "record 0 of the batch: trapped" in found["differences"][0]["failure"]
    assert run(node, f"headrace consume {topic} -e --from-beginning", tmp_path) == "a\nx\nb\n"


def test_what_is_neither_a_file_nor_a_module_is_said_to_be_neither(
    node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    run(node, f"! headrace wasm try gone.wasm --topic {topic} 2> said", tmp_path)
    assert (tmp_path / "said").read_text() == "headrace: there is no file gone.wasm, and no module with that id\n"


def test_modules_are_looked_after_by_the_owner_of_the_data_directory(
    node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "logs.wasm").write_bytes(wasm.LOGS_SIZE)
    owner = f"--local {node.data_dir} --api http://localhost:1"
    run(node, f"headrace wasm push {topic} logs.wasm {owner}", tmp_path)
    run(node, f"headrace wasm assign {topic} {topic}_v1 {owner}", tmp_path)
    assert f"{topic}_v1" in run(node, f"headrace wasm list {owner}", tmp_path)
    run(node, f"headrace wasm assign {topic} --none {owner} && headrace wasm remove {topic}_v1 {owner}", tmp_path)


def test_what_a_module_logged_is_shown(node: NodeProcess, topic: str, tmp_path: Path) -> None:
    (tmp_path / "logs.wasm").write_bytes(wasm.LOGS_SIZE)
    run(node, f"headrace wasm push {topic} logs.wasm && headrace wasm assign {topic} {topic}_v1", tmp_path)
    run(node, f"echo a | headrace produce {topic} --partition 2", tmp_path)
    waits = f"for i in $(seq 30); do headrace wasm logs --module {topic}_v1 | grep . && break; sleep 1; done"
    assert run(node, waits, tmp_path) == f"{topic}_v1  {topic}/2  hello\n"


def skip_without_rust() -> None:
    try:
        find_rust(Path())
    except Rejected as reason:
        pytest.skip(str(reason))


def skip_without_assemblyscript() -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if int(node.removeprefix("v").split(".")[0]) < 20:
        pytest.skip(f"AssemblyScript's compiler needs Node 20; this is {node}")
    asked = ["npm", "view", "assemblyscript", "version", "--fetch-retries=0", "--fetch-timeout=10000"]
    if subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip("the registry that AssemblyScript's compiler comes from does not answer")


@pytest.mark.slow
def test_the_template_in_rust_builds_a_module(node: NodeProcess, topic: str, tmp_path: Path) -> None:
    skip_without_rust()
    run(node, "headrace wasm init module --language rust", tmp_path)
    built = json.loads(run(node, "headrace wasm build module --json", tmp_path))
    assert (built["takes"], "rustc" in built["by"]) == ("whole batches", True)
    run(node, f"echo hello | headrace produce {topic}", tmp_path)
    found = json.loads(run(node, f"headrace wasm try {built['path']} --topic {topic} --json", tmp_path))
    assert [each["after"] for each in found["differences"]] == ["null: HELLO"]


@pytest.mark.slow
def test_the_template_in_assemblyscript_builds_a_module(node: NodeProcess, topic: str, tmp_path: Path) -> None:
    skip_without_assemblyscript()
    run(node, "headrace wasm init module --language assemblyscript", tmp_path)
    built = json.loads(run(node, "headrace wasm build module --json", tmp_path))
    assert built["takes"] == "record by record"
    run(node, f"echo hello | headrace produce {topic}", tmp_path)
    found = json.loads(run(node, f"headrace wasm try {built['path']} --topic {topic} --json", tmp_path))
    assert [each["after"] for each in found["differences"]] == ["null: HELLO"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed")
def test_the_template_in_rust_does_on_this_machine_what_it_does_in_the_sandbox(tmp_path: Path) -> None:
    """Its code for this machine's processor, called as the host calls it: also where the Wasm target is not installed."""
    subprocess.run([sys.executable, "-m", "headrace", "wasm", "init", str(tmp_path), "--language", "rust"], check=True)
    subprocess.run(["cargo", "test", "--offline", "--quiet"], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run(["cargo", "build", "--offline", "--quiet"], cwd=tmp_path, check=True, capture_output=True)
    (library,) = (tmp_path / "target" / "debug").glob("libtransform.so")
    module = ctypes.CDLL(str(library))
    module.alloc.restype = module.process_batch.restype = ctypes.c_void_p
    records = [
        NewRecord(key=b"k", value=b"one", headers=(("h", b"v"), ("n", None)), timestamp_ms=5000),
        NewRecord(value=None, timestamp_ms=4000),
        NewRecord(value=b"three" * 1000, timestamp_ms=2**41),
    ]
    body = bytes(build_batch(records, now_ms=0)[HEADER_SIZE:])
    given = struct.pack("<IIq", len(records), 0, 5000) + body
    at = module.alloc(len(given))
    ctypes.memmove(at, given, len(given))
    answer = module.process_batch(ctypes.c_void_p(at), len(given))
    made_at, size = struct.unpack("<QI", ctypes.string_at(answer, 12))
    made = ctypes.string_at(made_at, size)
    assert made == struct.pack("<IIq", 3, 0, 5000) + body.replace(b"one", b"ONE").replace(b"three", b"THREE")
    assert walk_records(made[16:], 3, is_sparse=False).broken == -1
