"""Kafka Streams and Kafka Connect for interop tests, from Maven Central, kept in `.cache/java`.

Nothing of it is needed to use headrace. Where Java, Maven or the network is missing, the tests that ask for it are
skipped and say why.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "java"
DOWNLOAD_SECONDS_MAX = 180

STREAMS = ("kafka-streams",)
CONNECT = ("connect-runtime", "connect-file", "connect-json")

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>headrace</groupId><artifactId>interop</artifactId><version>1</version><dependencies>{dependencies}
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId>"
    "<version>{version}</version></dependency>"
)


def jars(artifacts: Sequence[str], version: str) -> Path:
    """A directory with the artifacts and everything they need; skips the test where that cannot be had."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    folder = CACHE / f"{'+'.join(artifacts)}-{version}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        # Another test process may be fetching them.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _download(artifacts, version, folder)
    return folder / "lib"


def _download(artifacts: Sequence[str], version: str, folder: Path) -> None:
    dependencies = "".join(_DEPENDENCY.format(name=name, version=version) for name in artifacts)
    (folder / "pom.xml").write_text(_POM.format(dependencies=dependencies))
    try:
        subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=DOWNLOAD_SECONDS_MAX,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"Maven could not fetch {', '.join(artifacts)} {version}: {error}")
    for chatty in (folder / "lib").glob("slf4j-reload4j*"):
        chatty.unlink()
    (folder / "complete").touch()


def java(lib: Path, main: str, *arguments: str, classes: Path | None = None) -> list[str]:
    """The command that runs a main class of these jars, or of `classes` with them."""
    class_path = f"{lib}/*" if classes is None else f"{classes}:{lib}/*"
    return ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", class_path, main, *arguments]


def compile_java(source: Path, lib: Path, target: Path) -> Path:
    if shutil.which("javac") is None:
        pytest.skip("javac is not installed")
    subprocess.run(["javac", "-cp", f"{lib}/*", "-d", str(target), str(source)], check=True, capture_output=True)
    return target
