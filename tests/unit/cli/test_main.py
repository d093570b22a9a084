import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from cyclopts import App

from headrace.cli import main as entry
from headrace.cli.commands import consume, produce
from headrace.cli.main import COMMANDS, build_app, main
from headrace.errors import Invalid, TopicNotFound

Run = Callable[..., int]


@pytest.fixture
def run() -> Run:
    def run(*arguments: str) -> int:
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert isinstance(stopped.value.code, int)
        return stopped.value.code

    return run


def test_every_command_module_has_an_app_of_its_name() -> None:
    for name in COMMANDS:
        try:
            module = import_module(f"headrace.cli.commands.{name}")
        except ModuleNotFoundError:
            continue
        assert isinstance(module.app, App), name
        assert module.app.name == (name,)


def test_every_option_says_what_it_does() -> None:
    """The reference is generated from the commands; `make check` fails where it is not theirs any more."""
    reference = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli.md").read_text()
    silent = re.findall(r"^\* `-.*`: (?:\*.*)?$", reference, re.MULTILINE)
    assert "--bootstrap" in reference
    assert silent == []


def test_help_imports_no_command() -> None:
    """Half a second of imports would be felt at every Tab and every typo."""
    script = (
        "import sys\n"
        "from headrace.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'confluent_kafka', 'pyspark', 'prometheus_client', 'numpy', 'headrace.node', 'headrace.config'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "topic" in done.stdout


@pytest.mark.requirement("X0.3")
def test_wrong_usage_is_status_1(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nonsense") == 1
    assert run("topic", "create") == 1
    assert run("topic", "alter", "orders") == 1
    assert "nothing to change" in capsys.readouterr().err


def test_our_errors_are_one_line_and_status_1(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise TopicNotFound("no topic called orders")

    monkeypatch.setattr(entry, "build_app", lambda: App(name="headrace", default_command=refuse))
    assert run() == 1
    assert capsys.readouterr().err == "headrace: no topic called orders\n"


def test_up_refuses_settings_before_it_starts_anything(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("up", "--ephemeral", "--set", "data.dri=x") == 1
    assert "data.dri: no such key (--set); did you mean data.dir?" in capsys.readouterr().err


def test_doors_without_a_client_say_so(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("consume", "orders", "--door", "carrier-pigeon") == 1
    assert "carrier-pigeon" in capsys.readouterr().err


def test_a_group_and_an_offset_exclude_each_other() -> None:
    with pytest.raises(Invalid, match="--group"):
        consume.consume("orders", group="billing", offset=3)


def test_a_beginning_and_an_offset_exclude_each_other() -> None:
    with pytest.raises(Invalid, match="not both"):
        consume.consume("orders", from_beginning=True, offset=3)


def test_version_is_the_packages(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.strip() == "0.1.0"


def test_completion_knows_the_commands() -> None:
    script = build_app().generate_completion(shell="bash")
    assert "produce" in script
    assert produce.app.name == ("produce",)


@pytest.mark.parametrize(
    "command",
    [
        "topic create t --partitions 0",
        "topic create t --replication-factor -2",
        "topic alter t --partitions -1",
        "produce t --partition -1",
        "consume t --offset -5",
        "consume t --partition -1",
        "consume t --max -1",
        "group reset g --to-offset -1",
        "sql q --limit -1",
    ],
)
def test_a_number_that_cannot_be_is_named_before_anybody_is_asked(
    run: Run, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    *before, option, _ = command.split()
    assert run(*command.split()) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert option in told
    assert "Must be >= " in told
    if not command.startswith("sql"):
        assert run(*before, option, "99999999999999999999") == 1
        assert "Must be <= " in capsys.readouterr().err


def test_a_file_that_cannot_be_used_is_one_line(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "not there" / "headrace.yml"
    place.parent.write_text("a file where a directory should be")
    assert run("pipeline", "init", "--config", str(place)) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert str(tmp_path) in told


def test_a_fault_of_our_own_keeps_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> App:
        raise OSError("of which nobody knows what it is about")

    monkeypatch.setattr(entry, "build_app", broken)
    with pytest.raises(OSError, match="nobody knows"):
        main(["topic"])


@pytest.mark.parametrize("is_buffered", [True, False])
def test_output_that_cannot_be_written_is_one_line(is_buffered: bool) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "headrace", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={} if is_buffered else {"PYTHONUNBUFFERED": "1"},
        )
    assert (done.returncode, done.stderr) == (1, "headrace: cannot write the answer: No space left on device\n")


def test_output_that_nobody_reads_any_more_ends_in_silence() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "headrace", "--version"], stdout=pipe, stderr=subprocess.PIPE, check=False, env={}
        )
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("content", [b"\xff\xfe", None], ids=["not text", "a directory"])
def test_a_configuration_that_cannot_be_read_is_named(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    place = tmp_path / "headrace.yml"
    if content is None:
        place.mkdir()
    else:
        place.write_bytes(content)
    assert run("pipeline", "list", "--config", str(place)) == 1
    told = capsys.readouterr().err
    assert told.startswith("headrace: ")
    assert str(place) in told
