"""The files that a cluster is started with: on one machine, and on several."""

import json
import tomllib
from pathlib import Path

import pytest
from cryptography import x509

from headrace.cli.cluster_files import LocalCluster
from headrace.cli.cluster_init import add_node, init
from headrace.config.load import load
from headrace.errors import Conflict, Invalid


def local(directory: Path, *, home: str = "sqlite", brokers: int = 3, has_free_ports: bool = False) -> LocalCluster:
    return LocalCluster(
        directory,
        brokers=brokers,
        home="etcd" if home == "etcd" else "sqlite",
        has_free_ports=has_free_ports,
        etcd_endpoints=("10.0.0.1:2379",) if home == "etcd" else (),
    )


@pytest.mark.parametrize(("home", "controllers"), [("sqlite", 1), ("etcd", 3)])
def test_every_process_gets_settings_that_it_can_start_with(tmp_path: Path, home: str, controllers: int) -> None:
    _, deciding, serving = local(tmp_path, home=home).stages()
    assert [len(deciding), len(serving)] == [controllers, 3]
    for child in deciding:
        settings = load(file=tmp_path / child.name / "controller.toml", environ={}, role="controller")
        assert settings.control.metastore_type == home
    endpoints = set()
    first_choices = []
    for child in serving:
        settings = load(file=tmp_path / child.name / "broker.toml", environ={}, role="broker")
        assert settings.object_store.local_path == str(tmp_path / "objects")
        assert len(settings.control.controller_endpoints) == controllers
        endpoints.add(settings.kafka.listen)
        first_choices.append(settings.control.controller_endpoints[0])
    assert endpoints == {"127.0.0.1:9092", "127.0.0.1:9192", "127.0.0.1:9292"}
    assert len(set(first_choices)) == controllers, "nobody's death is felt by all"


@pytest.mark.parametrize("has_free_ports", [False, True])
def test_no_port_is_given_twice(tmp_path: Path, has_free_ports: bool) -> None:
    local(tmp_path, home="etcd", has_free_ports=has_free_ports).stages()
    files = [tomllib.loads(file.read_text())["listen"] for file in tmp_path.glob("*/*.toml")]
    # UDP has ports of its own.
    datagrams = [each.pop("quic") for each in files if "quic" in each]
    listens = [
        value
        for file in files
        for value in file.values()
        for value in (value.values() if isinstance(value, dict) else [value])
    ]
    assert len(listens) == len(set(listens)) == 3 * 2 + 3 * 10
    assert len(datagrams) == len(set(datagrams)) == 3


def test_a_cluster_does_not_start_without_the_metadata_it_had(tmp_path: Path) -> None:
    local(tmp_path).stages()
    with pytest.raises(Conflict, match="--metastore sqlite"):
        local(tmp_path, home="etcd")


def test_without_an_etcd_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster = LocalCluster(tmp_path / "d", brokers=1, home="etcd", has_free_ports=True)
    with pytest.raises(Invalid, match="--etcd-endpoints"):
        cluster.stages()


def test_endpoints_of_the_whole_list_every_broker(tmp_path: Path) -> None:
    cluster = local(tmp_path, brokers=2)
    cluster.stages()
    for name, port in (("node-1", 9092), ("node-2", 9192)):
        (tmp_path / name / "endpoints.json").write_text(json.dumps({"kafka": f"127.0.0.1:{port}"}))
    cluster.publish()
    found = json.loads((tmp_path / "endpoints.json").read_text())
    assert found["kafka"] == ["127.0.0.1:9092", "127.0.0.1:9192"]
    assert found["controllers"] == ["127.0.0.1:9093"]
    cluster.withdraw()
    assert not (tmp_path / "endpoints.json").exists()


def test_each_machine_gets_what_it_needs_and_keys_that_only_their_owner_reads(tmp_path: Path) -> None:
    out = tmp_path / "out"
    init(nodes="a.example,b.example", out=out, bucket="records", install_dir=out / "a.example")
    controller = load(file=out / "a.example" / "controller.toml", environ={}, role="controller")
    assert controller.control.node_id == "a.example"
    assert controller.control.has_rpc_tls
    with pytest.raises(Invalid, match=r"listener kafka: .* would serve anybody"):
        load(file=out / "a.example" / "broker.toml", environ={}, role="broker")
    broker = load(
        file=out / "a.example" / "broker.toml", environ={}, role="broker", assignments=["listener.kafka.open=true"]
    )
    assert broker.control.controller_endpoints == ("a.example:9093", "b.example:9093")
    assert {path.stat().st_mode & 0o077 for path in out.rglob("*.key")} == {0}


def test_a_node_that_is_added_later_is_signed_by_the_same_authority(tmp_path: Path) -> None:
    out = tmp_path / "out"
    init(nodes="10.0.0.1", out=out)
    add_node("10.0.0.2", out=out)
    authority = x509.load_pem_x509_certificate((out / "ca.pem").read_bytes())
    certificate = x509.load_pem_x509_certificate((out / "10.0.0.2" / "node.pem").read_bytes())
    certificate.verify_directly_issued_by(authority)
    assert (out / "10.0.0.2" / "ca.pem").read_bytes() == (out / "ca.pem").read_bytes()
    assert not (out / "10.0.0.2" / "controller.toml").exists()
    with pytest.raises(Invalid, match="exists already"):
        add_node("10.0.0.2", out=out)


def test_one_authority_is_never_written_over_another(tmp_path: Path) -> None:
    init(nodes="a", out=tmp_path / "out")
    with pytest.raises(Invalid, match="not empty"):
        init(nodes="a,b", out=tmp_path / "out")


@pytest.mark.parametrize("nodes", ["", ",", "a,a", "a b", "../a", "a/b"])
def test_names_that_no_machine_has_are_refused(tmp_path: Path, nodes: str) -> None:
    with pytest.raises(Invalid, match="--nodes"):
        init(nodes=nodes, out=tmp_path / "out")
