"""`headrace broker` and `headrace controller` refuse what they cannot start with, by name, and write nothing."""

from pathlib import Path

import pytest

from headrace.cli.main import main


@pytest.mark.requirement("R3.106", "R3.115")
@pytest.mark.parametrize(
    ("role", "settings", "message"),
    [
        ("controller", (), "node.id: required, and nobody gave it"),
        ("controller", ("node.id=c1", "metastore.type=zookeeper"), "metastore.type: expected one of sqlite, etcd"),
        ("broker", (), "object_store.s3.bucket: required when object_store.type is s3"),
        ("broker", ("rack.id=",), "rack.id: expected str of length >= 1"),
    ],
)
def test_settings_that_cannot_be_are_named_and_end_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    role: str,
    settings: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([role, *(each for setting in settings for each in ("--set", setting))])
    assert ended.value.code == 1
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
