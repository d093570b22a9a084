"""A module with serde_json inside, for the benchmark: built from `serde/` and Rust's template, kept in the user's cache directory.

The crates come from their registry when it is built, in the versions and with the checksums of `serde/Cargo.lock`. They are those that
the oldest compiler of the templates (1.63) accepts. An old cargo reads the registry only as a git repository, so whichever cargo of
this machine can get the crates does, and the one that belongs to the compiler builds without a network.
"""

import hashlib
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Final

from headrace.bench.errors import RivalUnavailable
from headrace.errors import Rejected
from headrace.transforms.projects import begin, build, programs_named
from headrace.user_cache import cache_directory

_SOURCES: Final = ("Cargo.toml", "Cargo.lock", "src/lib.rs")
_VENDORED: Final = '[source.crates-io]\nreplace-with = "vendored"\n\n[source.vendored]\ndirectory = "vendor"\n'
_FETCH_SECONDS_MAX: Final = 120


def serde_module() -> bytes:
    """The module; the first call fetches crates and compiles."""
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch) / "scrub"
        begin(project, "rust")
        for path in _SOURCES:
            (project / path).write_bytes(files("headrace.bench").joinpath("serde", *path.split("/")).read_bytes())
        sources = b"".join(path.read_bytes() for path in sorted(project.rglob("*.*")) if path.is_file())
        kept = cache_directory() / f"serde-{hashlib.sha256(sources).hexdigest()[:16]}.wasm"
        if not kept.exists():
            _vendor(project)
            try:
                made = build(project).path
            except Rejected as reason:
                raise RivalUnavailable(str(reason)) from reason
            kept.parent.mkdir(parents=True, exist_ok=True)
            # By way of a name of its own: an interrupted copy is never mistaken for a module.
            shutil.move(shutil.copy(made, kept.with_suffix(".part")), kept)
    return kept.read_bytes()


def _vendor(project: Path) -> None:
    reason = "cargo is not installed"
    for cargo in programs_named("cargo"):
        command = [str(cargo), "vendor", "--locked", "--quiet", "vendor"]
        try:
            subprocess.run(command, cwd=project, check=True, capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            reason = f"{cargo} got no crates within {_FETCH_SECONDS_MAX} seconds"
        except subprocess.CalledProcessError as error:
            reason = f"{cargo} could not get crates: {error.stderr.strip().rpartition(chr(10))[2]}"
        else:
            (project / ".cargo").mkdir()
            (project / ".cargo" / "config.toml").write_text(_VENDORED)
            return
    raise RivalUnavailable(reason)
