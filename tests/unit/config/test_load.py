from pathlib import Path

import pytest

from headrace.config.keys import all_keys
from headrace.config.load import load
from headrace.config.memory import memory_bytes
from headrace.config.settings import NodeSettings
from headrace.config.sources import unknown_variables
from headrace.errors import Invalid


def embedded(*assignments: str, file: Path | None = None, environ: dict[str, str] | None = None) -> NodeSettings:
    return load(file=file, environ=environ or {}, assignments=assignments)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "headrace.toml"
    path.write_text(text)
    return path


def test_one_node_needs_no_settings_at_all() -> None:
    settings = embedded()
    assert settings.server.data_dir == "data"
    assert settings.admin.listen == "127.0.0.1:9642"


def test_dotted_keys_and_tables_are_the_same_key(tmp_path: Path) -> None:
    flat = embedded(file=written(tmp_path, 'listen.admin = "127.0.0.1:1"\ndata.dir = "/a"\n'))
    nested = embedded(file=written(tmp_path, '[listen]\nadmin = "127.0.0.1:1"\n[data]\ndir = "/a"\n'))
    assert flat == nested
    assert flat.admin.listen == "127.0.0.1:1"


def test_flags_beat_the_environment_and_the_environment_beats_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, 'data.dir = "/file"\nrack.id = "file"\nbroker.id = "file"\n')
    environ = {"HEADRACE_RACK_ID": "env", "HEADRACE_BROKER_ID": "env"}
    settings = embedded("broker.id=flag", file=file, environ=environ)
    assert (settings.server.data_dir, settings.server.rack_id, settings.server.broker_id) == (
        "/file",
        "env",
        "flag",
    )


def test_text_is_read_as_its_keys_type() -> None:
    settings = embedded("pipeline.enable=false", "admin.hosts=a.example, b.example")
    assert settings.server.pipeline_enable is False
    assert settings.admin.hosts == ("a.example", "b.example")
    assert embedded('admin.hosts=["a.example"]').admin.hosts == ("a.example",)


@pytest.mark.requirement("R3.115")
@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("pipeline.enable=perhaps", r"pipeline\.enable: expected bool, got 'perhaps' \(--set\)"),
        ("logging.level=loud", r"logging\.level: expected one of debug, info, warning, error, got 'loud'"),
        ("listen.admin=9642", r"listen\.admin: expected host:port"),
        ("listen.admin=localhost:70000", r"listen\.admin: expected host:port"),
        ("broker.id=", r"broker\.id: expected str of length >= 1"),
        ("lisen.admin=x:1", r"lisen\.admin: no such key \(--set\); did you mean listen\.admin\?"),
        ("admin.hosts=[1", r"admin\.hosts: not a list"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_key(assignment: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        embedded(assignment)


@pytest.mark.requirement("R3.115")
def test_every_wrong_key_is_named_at_once_with_where_it_came_from(tmp_path: Path) -> None:
    file = written(tmp_path, "broker.id = 7\nzzz = 1\n")
    with pytest.raises(Invalid) as caught:
        embedded("logging.format=xml", file=file)
    lines = str(caught.value).splitlines()[1:]
    assert [line.strip().split(":")[0] for line in lines] == ["broker.id", "zzz", "logging.format"]
    assert str(file) in lines[0]
    assert "did you mean" not in lines[1]


def test_a_file_that_is_missing_or_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"cannot read .*absent\.toml"):
        embedded(file=tmp_path / "absent.toml")
    with pytest.raises(Invalid, match="is not TOML"):
        embedded(file=written(tmp_path, "= = ="))
    with pytest.raises(Invalid, match="expected KEY=VALUE"):
        embedded("data.dir")


def test_ephemeral_listens_on_free_loopback_ports_unless_told() -> None:
    settings = load(environ={}, assignments=["listen.mlog=127.0.0.1:5"], is_ephemeral=True)
    assert settings.admin.listen == "127.0.0.1:0"
    assert settings.mlog.listen == "127.0.0.1:5"


def test_variables_that_name_no_setting_are_reported_and_not_refused() -> None:
    environ = {
        "HEADRACE_DATA_DIR": "/srv",
        "HEADRACE_SERVICE_HOST": "10.0.0.1",
        "HEADRACE_BOOTSTRAP": "localhost:9092",
        "HOME": "/",
    }
    assert embedded(environ=environ).server.data_dir == "/srv"
    assert unknown_variables(environ, all_keys()) == ["HEADRACE_SERVICE_HOST"]


def test_every_key_has_a_variable_of_its_own() -> None:
    variables = [key.variable for key in all_keys().values()]
    assert len(set(variables)) == len(variables)
    assert "HEADRACE_DATA_DIR" in variables


@pytest.mark.requirement("R3.94", "R3.98", "R3.100", "R3.105")
@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("broker.id", None),
        ("rack.id", None),
        ("wal.capacity.bytes", 10_737_418_240),
        ("object_store.s3.region", "us-central1"),
    ],
)
def test_defaults_are_those_of_their_table(name: str, default: object) -> None:
    settings = embedded()
    key = all_keys()[name]
    assert getattr(getattr(settings, key.section), key.field) == default


@pytest.mark.requirement("R3.101", "R3.102")
def test_caches_are_a_share_of_memory_unless_told() -> None:
    assert embedded().log.cache_write_size_bytes == memory_bytes() * 10 // 100
    assert embedded().tier.cache_read_size_bytes == memory_bytes() * 25 // 100
    assert embedded("cache.write.size.bytes=2097152").log.cache_write_size_bytes == 2_097_152


@pytest.mark.requirement("R3.104", "R3.115")
def test_a_store_with_buckets_needs_one() -> None:
    with pytest.raises(Invalid, match=r"object_store\.s3\.bucket: required when object_store\.type is s3"):
        embedded("object_store.type=s3")
    with pytest.raises(Invalid, match=r"object_store\.gcs\.bucket: required"):
        embedded("object_store.type=gcs")


@pytest.mark.requirement("R3.103", "R3.115")
def test_an_object_store_nobody_knows_is_refused() -> None:
    with pytest.raises(Invalid, match=r"object_store\.type: expected one of s3, gcs, .*got 'ftp'"):
        embedded("object_store.type=ftp")


def test_one_node_keeps_everything_in_its_data_directory() -> None:
    settings = embedded("data.dir=/srv/mill")
    assert settings.log.wal_path == "/srv/mill/wal"
    assert settings.object_store.type == "local"
    assert settings.object_store.local_path == "/srv/mill/objects"
    assert embedded("data.dir=/srv/mill", "wal.path=/fast/wal").log.wal_path == "/fast/wal"


@pytest.mark.requirement("R3.115")
def test_a_number_out_of_range_is_refused_with_its_bound() -> None:
    with pytest.raises(Invalid, match=r"wal\.capacity\.bytes: expected int >= \d+, got '12'"):
        embedded("wal.capacity.bytes=12")


def test_kafkas_own_names_need_no_prefix() -> None:
    settings = embedded("num.partitions=12", "auto.create.topics.enable=false", "listen.kafka=127.0.0.1:0")
    assert settings.kafka.num_partitions == 12
    assert settings.kafka.auto_create_topics_enable is False
    assert settings.kafka.listen == "127.0.0.1:0"


@pytest.mark.requirement("R4.70")
def test_kafka_clients_find_a_node_where_they_look_first() -> None:
    assert load(environ={}).kafka.listen == "127.0.0.1:9092"
