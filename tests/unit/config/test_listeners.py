"""Listeners that people name, and which of them may be reached from outside."""

from pathlib import Path

import pytest

from headrace.config.keys import all_keys
from headrace.config.load import load
from headrace.config.openness import open_listeners
from headrace.config.settings import NodeSettings
from headrace.doors.settings import ListenerSettings
from headrace.errors import Invalid

OUTSIDE = ("listener.outside.door=kafka", "listener.outside.listen=127.0.0.1:9094")


def embedded(*assignments: str, environ: dict[str, str] | None = None, is_ephemeral: bool = False) -> NodeSettings:
    return load(environ=environ or {}, assignments=assignments, is_ephemeral=is_ephemeral)


def test_every_door_has_a_listener_of_its_name() -> None:
    settings = embedded("listen.kafka=127.0.0.1:1", "advertised.kafka=log:2")
    assert [each.name for each in settings.listeners] == ["kafka", "quic", "rustlog", "mlog", "logjam", "admin"]
    assert settings.listeners_of("kafka") == (
        ListenerSettings(name="kafka", door="kafka", listen="127.0.0.1:1", advertised="log:2"),
    )


def test_a_door_can_have_more_listeners(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(
        '[listener.outside]\ndoor = "kafka"\nlisten = "127.0.0.1:9094"\nadvertised = "log.example.com:9094"\n'
    )
    settings = load(environ={}, file=file)
    own, outside = settings.listeners_of("kafka")
    assert own.name == "kafka"
    assert outside == ListenerSettings(
        name="outside", door="kafka", listen="127.0.0.1:9094", advertised="log.example.com:9094"
    )


def test_the_environment_and_flags_know_named_listeners() -> None:
    environ = {"HEADRACE_LISTENER_OUTSIDE_DOOR": "mlog", "HEADRACE_LISTENER_OUTSIDE_LISTEN": "127.0.0.1:1"}
    _, outside = embedded("listener.outside.listen=127.0.0.1:2", environ=environ).listeners_of("mlog")
    assert outside.listen == "127.0.0.1:2"


def test_a_free_port_for_every_listener_of_an_ephemeral_node() -> None:
    environ = {"HEADRACE_LISTENER_OUTSIDE_DOOR": "kafka", "HEADRACE_LISTENER_OUTSIDE_LISTEN": "0.0.0.0:9094"}
    settings = embedded(environ=environ, is_ephemeral=True)
    assert {each.listen for each in settings.listeners} == {"127.0.0.1:0"}


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (("listener.outside.listen=127.0.0.1:1",), r"listener\.outside\.door: required"),
        (("listener.outside.door=kafka",), r"listener\.outside\.listen: required"),
        ((*OUTSIDE, "listener.outside.lisen=x"), r"listener\.outside\.lisen: no such key .*listener\.outside\.listen"),
        (("listener.outside.door=http", "listener.outside.listen=h:1"), r"listener\.outside\.door: expected one of"),
        (
            ("listener.two.door=logjam", "listener.two.listen=127.0.0.1:1"),
            r"listener\.two\.door: expected one of kafka, ",
        ),
        (
            ("listener.outside.door=kafka", "listener.outside.listen=9094"),
            r"listener\.outside\.listen: expected host:port",
        ),
        (("listener.kafka.listen=127.0.0.1:1",), r"listener\.kafka\.listen: no such key"),
        (("listener.Out_side.listen=127.0.0.1:1",), r"listener\.Out_side\.listen: no such key"),
    ],
)
def test_what_is_wrong_with_a_listener_is_said_by_its_key(assignments: tuple[str, ...], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        embedded(*assignments)


def test_a_node_is_reached_by_its_own_machine_alone_unless_told() -> None:
    settings = embedded()
    listens = [name for name in all_keys() if name.startswith("listen.")]
    assert len(listens) == 13
    keys = all_keys()
    assert {
        getattr(getattr(settings, keys[name].section), keys[name].field).rpartition(":")[0] for name in listens
    } == {"127.0.0.1"}
    assert open_listeners(settings) == ()


@pytest.mark.requirement("R3.96")
def test_quic_listens_on_9092_of_all_addresses_where_nobody_says_otherwise() -> None:
    assert all_keys()["listen.quic"].default == "0.0.0.0:9092"
    assert embedded().quic.listen == "127.0.0.1:9092", "a node alone is closed until opened"
    assert embedded("security.open=true").quic.listen == "0.0.0.0:9092"


def test_the_quic_door_can_be_off() -> None:
    settings = embedded("listen.quic=off", "security.open=true")
    assert settings.listeners_of("quic") == ()
    assert not any("quic" in each for each in open_listeners(settings))
    with pytest.raises(Invalid, match=r"listener\.quic\.sasl: listen\.quic is off"):
        embedded("listen.quic=off", "listener.quic.sasl=PLAIN")
    with pytest.raises(Invalid, match=r"listen\.mlog: expected host:port"):
        embedded("listen.mlog=off")


def test_quic_is_open_to_others_only_if_it_asks_who_they_are() -> None:
    with pytest.raises(Invalid, match=r"listener quic: 0\.0\.0\.0:9092 is reached by other machines"):
        embedded("listen.quic=0.0.0.0:9092")
    # QUIC is encrypted without being told to be.
    assert embedded("listen.quic=0.0.0.0:9092", "listener.quic.sasl=PLAIN").listeners_of("quic")[0].sasl == ("PLAIN",)
    with pytest.raises(Invalid, match=r"listener\.quic\.tls\.client\.auth: QUIC does not ask"):
        embedded("listener.quic.tls.client.auth=required")


def test_an_open_node_listens_on_all_addresses_and_can_say_where() -> None:
    settings = embedded("security.open=true", "listen.mlog=127.0.0.1:9095", "listen.rustlog=[::1]:9096")
    assert settings.kafka.listen == "0.0.0.0:9092"
    assert open_listeners(settings) == (
        "kafka at 0.0.0.0:9092",
        "quic at 0.0.0.0:9092",
        "logjam at 0.0.0.0:9604",
        "logjam at 0.0.0.0:9605",
        "logjam at 0.0.0.0:9606",
        "logjam at 0.0.0.0:9607",
        "admin at 0.0.0.0:9642",
    )


@pytest.mark.parametrize("address", ["0.0.0.0:9092", "[::]:9092", "10.0.0.7:9092", "log.example.com:9092"])
def test_other_machines_are_not_let_in_by_accident(address: str) -> None:
    with pytest.raises(
        Invalid, match=r"listener kafka: .* would serve anybody; .*`--open`.*listener\.kafka\.open=true"
    ):
        embedded(f"listen.kafka={address}")
    assert embedded(f"listen.kafka={address}", "security.open=true").kafka.listen == address
    assert open_listeners(embedded(f"listen.kafka={address}", "listener.kafka.open=true")) == (f"kafka at {address}",)


def test_each_socket_of_logjam_counts() -> None:
    with pytest.raises(Invalid, match=r"listener logjam: 0\.0\.0\.0:9606 is reached"):
        embedded("listen.logjam.pub=0.0.0.0:9606")


def test_a_named_listener_counts() -> None:
    with pytest.raises(Invalid, match=r"listener outside: 0\.0\.0\.0:9094 is reached"):
        embedded("listener.outside.door=kafka", "listener.outside.listen=0.0.0.0:9094")


def test_curve_is_logjams_and_needs_both_files() -> None:
    both = ["listener.logjam.curve.key=k", "listener.logjam.curve.clients=c"]
    with pytest.raises(Invalid, match="one needs the other"):
        embedded(both[0])
    with pytest.raises(Invalid, match=r"only Logjam's sockets"):
        embedded("listener.kafka.curve.key=k", "listener.kafka.curve.clients=c")
    assert open_listeners(embedded(*both, "listen.logjam.router=0.0.0.0:9604")) == ()


def test_tokens_need_keys_an_issuer_an_audience_and_tls() -> None:
    said = ["listener.kafka.sasl=OAUTHBEARER"]
    with pytest.raises(Invalid, match=r"OAUTHBEARER shows tokens(.|\n)*jwks\.file(.|\n)*issuer(.|\n)*audience"):
        embedded(*said)
    said += [f"security.oauth.{key}=x" for key in ("jwks.file", "issuer", "audience")]
    with pytest.raises(Invalid, match="shows tokens"):
        embedded(*said)
    assert embedded(*said, "security.plain.insecure=true").security.oauth_issuer == "x"
