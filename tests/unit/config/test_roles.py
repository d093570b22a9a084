"""A broker and a controller of several: their defaults, and what stops them."""

import pytest

from headrace.config.load import load
from headrace.config.roles import Role
from headrace.config.settings import NodeSettings
from headrace.errors import Invalid

LOCAL_STORE = ("object_store.type=local", "object_store.local.path=/shared")
TLS = ("rpc.tls.ca=ca.pem", "rpc.tls.certificate=node.pem", "rpc.tls.key=node.key")


def loaded(role: Role, *assignments: str) -> NodeSettings:
    return load(environ={}, assignments=assignments, role=role)


def controller(*assignments: str) -> NodeSettings:
    return loaded("controller", "node.id=c1", *assignments)


def broker(*assignments: str) -> NodeSettings:
    return loaded("broker", *LOCAL_STORE, *assignments)


@pytest.mark.requirement("R3.95", "R3.97", "R3.107", "R3.109", "R3.111")
def test_controllers_and_brokers_keep_the_defaults_of_their_table() -> None:
    control = controller("security.open=true").control
    assert control.controller_endpoints == ("localhost:9093",)
    assert control.listen_rpc == "0.0.0.0:9093"
    assert control.listen_http == "0.0.0.0:9642"
    assert control.metastore_endpoints == ("localhost:2379",)
    assert control.metastore_type == "etcd"
    assert broker("security.open=true").kafka.listen == "0.0.0.0:9092"


@pytest.mark.requirement("R3.106", "R3.115")
def test_a_controller_needs_a_name() -> None:
    with pytest.raises(Invalid, match=r"node\.id: required"):
        loaded("controller", "security.open=true")


@pytest.mark.requirement("R3.115")
@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("metastore.type=zookeeper", r"metastore\.type: expected one of sqlite, etcd"),
        ("metastore.endpoints=[]", r"metastore\.endpoints: names nobody"),
        ("listen.rpc=9093", r"listen\.rpc: expected host:port"),
        ("listen.http=127.0.0.1:9093", r"listen\.rpc and listen\.http: both are on port 9093"),
        ("rpc.tls.ca=ca.pem", r"rpc\.tls\.ca, .*: one needs the others"),
    ],
)
def test_what_a_controller_cannot_use_is_refused_by_its_key(assignment: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        controller("listen.rpc=127.0.0.1:9093", "listen.http=127.0.0.1:9642", assignment)


def test_a_controller_that_others_reach_lets_in_nodes_of_its_cluster_only() -> None:
    with pytest.raises(Invalid, match=r"listen\.rpc: 0\.0\.0\.0:9093 is reached by other machines"):
        controller("listen.http=127.0.0.1:9642")
    with pytest.raises(Invalid, match=r"listen\.http"):
        controller(*TLS)
    assert controller("listen.http=127.0.0.1:9642", *TLS).control.has_rpc_tls
    controller("listen.http=127.0.0.1:9642", "listen.rpc=127.0.0.1:9093")


def test_a_broker_does_not_trust_controllers_of_other_machines_on_their_word() -> None:
    loopback = [f"listen.{door}=127.0.0.1:0" for door in ("kafka", "quic", "rustlog", "mlog", "admin")]
    loopback += [f"listen.logjam.{each}=127.0.0.1:0" for each in ("router", "pull", "pub", "live")]
    with pytest.raises(Invalid, match=r"controller\.endpoints: c2\.example:9093 is another machine"):
        broker(*loopback, "controller.endpoints=localhost:9093,c2.example:9093")
    broker(*loopback, "controller.endpoints=localhost:9093,c2.example:9093", *TLS)


def test_a_broker_needs_the_store_that_all_of_them_share() -> None:
    with pytest.raises(Invalid, match=r"object_store\.s3\.bucket: required"):
        loaded("broker", "security.open=true")


def test_a_brokers_door_cannot_have_the_port_of_a_controller_on_its_machine() -> None:
    with pytest.raises(Invalid, match=r"controller\.endpoints and listener kafka: both are on port 9092"):
        broker("security.open=true", "controller.endpoints=127.0.0.1:9092")


def test_a_node_alone_is_asked_for_none_of_it() -> None:
    assert loaded("node").control.node_id is None
