"""Archives of Spark's classes: which session gets which, and who makes them."""

import atexit
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import Unavailable
from headrace.pipeline.class_archive import CLASS_PATH, JAVA_OPTIONS, ClassArchive, archive_for, archive_options
from headrace.pipeline.session import session_conf
from headrace.pipeline.settings import SparkSettings

TRAINED = 'echo classes > "$3"'
"""What a training does, as a shell sees it: its arguments are -m, the module, the archive and the class path."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java and a Spark of two files each, and a cache with nothing in it."""
    for name in ("java/bin/java", "java/release", "spark/jars/a.jar", "spark/jars/b.jar"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    return tmp_path


@pytest.fixture
def at_exit(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What is to be done at the end of this process."""
    registered: list[tuple[object, ...]] = []
    monkeypatch.setattr(atexit, "register", lambda *call: registered.append(call))
    return registered


def archive(conf: dict[str, str] | None = None) -> ClassArchive:
    found = archive_for(conf or {})
    assert found is not None
    return found


def kept(found: ClassArchive, content: str = "classes") -> Path:
    found.directory.mkdir(parents=True, exist_ok=True)
    path = found.directory / f"{found.key}-{len(content)}.jsa"
    path.write_text(content)
    return path


def train_with(monkeypatch: pytest.MonkeyPatch, directory: Path, script: str) -> None:
    program = directory / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_the_same_java_and_jars_share_an_archive(home: Path) -> None:
    assert archive() == archive({"spark.jars": "/srv/connector.jar", "spark.driver.memory": "4g"})
    assert archive().directory == home / "my cache" / "headrace" / "spark-classes"


@pytest.mark.parametrize(
    "change",
    [
        lambda home: (home / "java/release").write_text("another version"),
        lambda home: (home / "java/bin/java").write_text("another build"),
        lambda home: (home / "spark/jars/a.jar").write_text("of another size"),
        lambda home: os.utime(home / "spark/jars/a.jar", (1, 1)),
        lambda home: (home / "spark/jars/c.jar").write_text("one more"),
        lambda home: (home / "spark/jars/b.jar").unlink(),
    ],
)
def test_another_java_or_jar_is_another_archive(home: Path, change: Callable[[Path], object]) -> None:
    before = archive()
    change(home)
    assert archive() != before


def test_what_stands_before_sparks_jars_is_part_of_the_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = home / "mine.jar"
    jar.write_text("mine")
    found = {archive().key, archive({CLASS_PATH: str(jar)}).key}
    jar.write_text("mine, and larger")
    found.add(archive({CLASS_PATH: str(jar)}).key)
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    found.add(archive().key)
    assert len(found) == 4


def test_without_java_or_a_home_there_is_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert archive_for({}) is None
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    assert archive_options({}) == {}


def test_a_session_maps_the_archive_that_is_there(at_exit: list[tuple[object, ...]]) -> None:
    path = kept(archive())
    os.utime(path, (1, 1))
    options = session_conf(SparkSettings())[JAVA_OPTIONS]
    assert f'"-XX:SharedArchiveFile={path}"' in options, "a path may have blanks in it"
    assert path.stat().st_mtime > 1, "it was used just now"
    assert at_exit == []


def test_a_session_without_one_has_it_made_after_the_process(at_exit: list[tuple[object, ...]]) -> None:
    assert JAVA_OPTIONS not in session_conf(SparkSettings(conf={CLASS_PATH: "/srv/a.jar"}))
    ((_, class_path),) = at_exit
    assert class_path == "/srv/a.jar"


def test_an_archive_that_was_cut_short_is_not_mapped_but_replaced(
    home: Path, monkeypatch: pytest.MonkeyPatch, at_exit: list[tuple[object, ...]]
) -> None:
    os.truncate(kept(archive()), 3)
    assert JAVA_OPTIONS not in session_conf(SparkSettings())
    assert len(at_exit) == 1
    train_with(monkeypatch, home, TRAINED)
    assert [archive().make()] == list(archive().directory.iterdir())


def test_an_archive_that_is_deleted_meanwhile_is_not_there(at_exit: list[tuple[object, ...]]) -> None:
    found = archive()
    found.directory.mkdir(parents=True)
    (found.directory / f"{found.key}-7.jsa").symlink_to("gone")
    assert JAVA_OPTIONS not in session_conf(SparkSettings())
    assert len(at_exit) == 1


@pytest.mark.parametrize("cache", ["/proc/nowhere", "/dev/null"])
def test_a_cache_that_cannot_be_is_no_reason_to_fail(
    monkeypatch: pytest.MonkeyPatch, at_exit: list[tuple[object, ...]], cache: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    assert JAVA_OPTIONS not in session_conf(SparkSettings())


def test_what_could_not_be_made_is_not_tried_after_every_session(at_exit: list[tuple[object, ...]]) -> None:
    failed = kept(archive(), "")
    assert JAVA_OPTIONS not in session_conf(SparkSettings())
    assert at_exit == []
    os.utime(failed, (1, 1))
    assert JAVA_OPTIONS not in session_conf(SparkSettings())
    assert len(at_exit) == 1, "another day"


def test_it_can_be_switched_off_and_replaced(at_exit: list[tuple[object, ...]]) -> None:
    assert JAVA_OPTIONS not in session_conf(SparkSettings(class_archive=False))
    assert at_exit == []
    kept(archive())
    assert session_conf(SparkSettings(conf={JAVA_OPTIONS: "-Xmine"}))[JAVA_OPTIONS] == "-Xmine"


def test_of_two_that_make_it_one_does(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_with(monkeypatch, home, f'echo once >> "{home}/trainings"\n{TRAINED}')
    found = archive()
    makers = [threading.Thread(target=found.make) for _ in range(2)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert found.path is not None
    assert found.path.read_text() == "classes\n"
    assert (home / "trainings").read_text() == "once\n"
    assert list(found.directory.iterdir()) == [found.path], "nothing else is left"


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("true", "no reason given"),
        (f"{TRAINED}\necho it went wrong >&2\nexit 1", "it went wrong"),
        (f"{TRAINED}\nkill -9 $$", "signal 9"),
    ],
)
def test_a_training_that_fails_is_remembered(
    home: Path, monkeypatch: pytest.MonkeyPatch, script: str, complaint: str
) -> None:
    train_with(monkeypatch, home, script)
    found = archive()
    assert found.is_due
    with pytest.raises(Unavailable, match=complaint):
        found.make()
    assert not found.is_due
    assert found.path is None
    train_with(monkeypatch, home, TRAINED)
    assert found.make() == found.path, "who asks for it by name gets another try"


def test_making_one_clears_away_what_is_no_longer_of_use(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_with(monkeypatch, home, TRAINED)
    found = archive()
    unused, used = kept(archive({CLASS_PATH: "/unused"})), kept(archive({CLASS_PATH: "/used"}))
    os.utime(unused, (1, 1))
    (found.directory / "making-of-a-killed-process").mkdir()
    assert {found.make(), used} == set(found.directory.iterdir())
