"""Projects that a Wasm module is built from: begun from a template, built by their language's own tools.

What the tools print goes to stderr, so that the command that runs them can answer in JSON.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, Literal

from headrace.errors import AlreadyExists, Invalid, Rejected

Language = Literal["rust", "assemblyscript", "wat"]
RUST_TARGET: Final = "wasm32-unknown-unknown"
MODULE_FILE: Final = "transform.wasm"
"""What a project is built to, in its directory."""


@dataclass(frozen=True, slots=True)
class Built:
    path: Path
    by: str
    """The compiler, for people."""


@dataclass(frozen=True, slots=True)
class Rust:
    """A compiler that has the target for modules, and the cargo that belongs to it."""

    compiler: Path
    cargo: Path

    @property
    def environment(self) -> dict[str, str]:
        """For `cargo`. A linker that is installed beside the compiler (Debian's is) is found through the path."""
        return {**os.environ, "RUSTC": str(self.compiler)}


def begin(directory: Path, language: Language) -> list[Path]:
    """Write the template's files into `directory`, where nothing was begun yet."""
    template = files("headrace.transforms").joinpath("templates", language)
    wanted = {directory / path: content for path, content in _files(template)}
    for path in (*_marks(directory), *wanted):
        if path.exists():
            raise AlreadyExists(f"{path} is there already: name another directory, or remove it")
    for path, content in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return list(wanted)


def _files(folder: Traversable, below: str = "") -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _files(each, f"{below}{each.name}/")
        elif not each.name.endswith((".py", ".pyc")):
            found.append((below + each.name, each.read_bytes()))
    return sorted(found)


def build(directory: Path) -> Built:
    """The module that the project makes, whatever its language is: `transform.wasm` in its directory."""
    marks = _marks(directory)
    if len(marks) != 1:
        raise Invalid(
            f"{directory}: expected one of a Cargo.toml, a package.json and a .wat file, "
            f"found {', '.join(mark.name for mark in marks) or 'none'}; `headrace wasm init` begins a project"
        )
    (mark,) = marks
    match mark.name:
        case "Cargo.toml":
            made, by = _build_rust(directory)
        case "package.json":
            made, by = _build_assemblyscript(directory)
        case _:
            made, by = _build_text(mark), "wasmtime"
    module = directory / MODULE_FILE
    module.write_bytes(made)
    return Built(module, by)


def _marks(directory: Path) -> list[Path]:
    """The files that say which language a project is in."""
    named = [directory / name for name in ("Cargo.toml", "package.json")]
    return [path for path in named if path.exists()] + sorted(directory.glob("*.wat"))


def find_rust(directory: Path) -> Rust:
    """The first compiler of the path that has the target for modules; often the first of all has not.

    Asked in `directory`, for rustup's compilers are chosen by where they are started.
    """
    asked: list[str] = []
    for compiler in programs_named("rustc"):
        if _has_target(compiler, directory):
            cargo = shutil.which("cargo", path=os.pathsep.join((str(compiler.parent), os.environ.get("PATH", ""))))
            if cargo is None:
                raise Rejected(f"cargo is not installed, and {directory} is built with it")
            return Rust(compiler, Path(cargo))
        asked.append(str(compiler))
    without = f"{' and '.join(asked)} lack it" if asked else "there is no rustc"
    raise Rejected(
        f"no compiler for the target {RUST_TARGET}: {without}; "
        f"`rustup target add {RUST_TARGET}` installs it, or Debian's rustc, cargo, lld and libstd-rust-dev-wasm32"
    )


def programs_named(name: str) -> Iterator[Path]:
    """Every one on the path, in its order."""
    seen = set[Path]()
    for place in os.get_exec_path():
        if (found := shutil.which(name, path=place)) is not None and (path := Path(found).absolute()) not in seen:
            seen.add(path)
            yield path


def _has_target(compiler: Path, directory: Path) -> bool:
    command = [str(compiler), "--print", "target-libdir", "--target", RUST_TARGET]
    answer = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return answer.returncode == 0 and Path(answer.stdout.strip()).is_dir()


def _build_rust(directory: Path) -> tuple[bytes, str]:
    rust = find_rust(directory)
    _run(directory, (str(rust.cargo), "build", "--release", "--target", RUST_TARGET), rust.environment)
    answer = subprocess.run([rust.compiler, "--version"], cwd=directory, capture_output=True, text=True, check=True)
    made = _newest(directory / "target" / RUST_TARGET / "release", "*.wasm")
    return made.read_bytes(), f"{answer.stdout.strip()} at {rust.compiler}"


def _build_assemblyscript(directory: Path) -> tuple[bytes, str]:
    """With the compiler that the project names, in the version and with the checksum of its lock."""
    npm = shutil.which("npm")
    if npm is None:
        raise Rejected(f"npm is not installed, and {directory} is built with it")
    if not (directory / "node_modules").exists():
        has_lock = (directory / "package-lock.json").exists()
        _run(directory, (npm, "ci" if has_lock else "install", "--ignore-scripts", "--no-audit", "--no-fund"))
    _run(directory, (npm, "run", "build"))
    return _newest(directory, "*.wasm").read_bytes(), "npm run build"


def _build_text(text: Path) -> bytes:
    import wasmtime

    try:
        return bytes(wasmtime.wat2wasm(text.read_text()))
    except wasmtime.WasmtimeError as error:
        raise Rejected(f"{text}: {error}") from error


def _run(directory: Path, command: tuple[str, ...], environment: Mapping[str, str] | None = None) -> None:
    if subprocess.run(command, cwd=directory, check=False, stdout=sys.stderr, env=environment).returncode:
        raise Rejected(f"`{' '.join(command)}` failed in {directory}")


def _newest(directory: Path, pattern: str) -> Path:
    found = sorted(directory.glob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        raise Rejected(f"the build left no {pattern} in {directory}")
    return found[-1]
