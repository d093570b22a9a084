"""Which tools build a module."""

from pathlib import Path

import pytest

from headrace.errors import AlreadyExists, Invalid, Rejected
from headrace.transforms.projects import begin, build, find_rust


def compiler(place: Path, *, library: Path) -> Path:
    """A rustc that says its target's library is at `library`, with a cargo beside it."""
    place.mkdir()
    for name in ("rustc", "cargo"):
        (place / name).write_text(f"#!/bin/sh\necho {library}\n")
        (place / name).chmod(0o755)
    return place / "rustc"


def test_a_compiler_without_the_target_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where rustup's compiler comes first on the path, and the system's has the target."""
    without = compiler(tmp_path / "first", library=tmp_path / "nowhere")
    having = compiler(tmp_path / "second", library=tmp_path)
    monkeypatch.setenv("PATH", f"{without.parent}:{having.parent}")
    found = find_rust(tmp_path)
    assert (found.compiler, found.cargo) == (having, having.parent / "cargo")
    assert found.environment["RUSTC"] == str(having)


def test_who_has_no_target_is_told_whom_we_asked_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = compiler(tmp_path / "first", library=tmp_path / "nowhere")
    monkeypatch.setenv("PATH", str(without.parent))
    with pytest.raises(Rejected, match=rf"{without} lack it; `rustup target add wasm32-unknown-unknown`"):
        find_rust(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Rejected, match="there is no rustc"):
        find_rust(tmp_path)


def test_a_directory_has_one_project(tmp_path: Path) -> None:
    begin(tmp_path, "wat")
    with pytest.raises(AlreadyExists, match=r"transform\.wat is there already"):
        begin(tmp_path, "rust")
    assert [path.name for path in tmp_path.iterdir()] == ["transform.wat"]
    (tmp_path / "package.json").write_text("{}")
    with pytest.raises(Invalid, match=r"found package\.json, transform\.wat"):
        build(tmp_path)


def test_a_module_in_rust_is_built_to_where_those_in_other_languages_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = compiler(tmp_path / "bin", library=tmp_path).parent
    project = tmp_path / "module"
    begin(project, "rust")
    made = project / "target" / "wasm32-unknown-unknown" / "release" / "transform.wasm"
    (tools / "cargo").write_text(f"#!/bin/sh\n/bin/mkdir -p {made.parent}\necho built > {made}\n")
    monkeypatch.setenv("PATH", str(tools))
    assert build(project).path == project / "transform.wasm"
    assert (project / "transform.wasm").read_text() == "built\n"
