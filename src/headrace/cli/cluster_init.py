"""`headrace cluster init`: what each machine of a cluster is given, one directory each."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from headrace.cli.cluster_files import from_its_own
from headrace.cli.output import say
from headrace.errors import Invalid

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,126}[A-Za-z0-9])?")
_FACTS: Final = "cluster.json"

_KAFKA_CLOSED: Final = """
# Clients of other machines: the broker does not start before it is said who may come in. One of these, see docs/operating/security.md:
# listener.kafka.sasl = ["SCRAM-SHA-256"]
# listener.kafka.open = true
"""


def init(
    *,
    nodes: Annotated[str, Parameter(name="--nodes")],
    out: Path,
    etcd_endpoints: str | None = None,
    bucket: str | None = None,
    install_dir: Path = Path("/etc/headrace"),
    state_dir: Path = Path("/var/lib/headrace"),
) -> None:
    """Write one directory per machine: settings of its controller and its broker, its certificate and its key.

    Copy OUT/NAME to INSTALL_DIR of that machine. OUT/ca.key signs further nodes: keep it, and keep it to yourself.

    Parameters
    ----------
    nodes:
        Names or addresses by which the machines reach each other, with commas between them.
    out:
        Where the directories are written. Must not exist, or be empty.
    etcd_endpoints:
        `host:port` of each member of the etcd, with commas between them; port 2379 of every node unless said otherwise.
    bucket:
        Name of the S3 bucket that all brokers share; to be filled in by hand otherwise.
    install_dir:
        Where the files will be on each machine.
    state_dir:
        Where each machine keeps its data.
    """
    from headrace.cli.authority import Authority

    names = [each.strip() for each in nodes.split(",") if each.strip()]
    _check_names(names)
    if out.exists() and any(out.iterdir()):
        raise Invalid(f"{out} is not empty: a cluster has one authority, and this directory may be another's")
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = {
        "controllers": [f"{name}:9093" for name in names],
        "etcd": etcd_endpoints.split(",") if etcd_endpoints else [f"{name}:2379" for name in names],
        "bucket": bucket or "",
        "install_dir": str(install_dir),
        "state_dir": str(state_dir),
    }
    (out / _FACTS).write_text(json.dumps(facts, indent=2))
    authority = Authority.found(out)
    for name in names:
        _write_node(out / name, name, facts, has_controller=True)
        authority.issue(name, out / name)
        say(f"{out / name}")


def add_node(name: str, *, out: Path) -> None:
    """Write the directory of one more machine, with a broker, for a cluster that `init` has prepared.

    Parameters
    ----------
    name:
        Name or address by which other machines reach it.
    out:
        The directory that `headrace cluster init` has written.
    """
    from headrace.cli.authority import Authority

    _check_names([name])
    facts = json.loads((out / _FACTS).read_text())
    if (out / name).exists():
        raise Invalid(f"{out / name} exists already")
    authority = Authority.load(out)
    _write_node(out / name, name, facts, has_controller=False)
    authority.issue(name, out / name)
    say(f"{out / name}")


def _check_names(names: Sequence[str]) -> None:
    if not names or len(set(names)) != len(names):
        raise Invalid("--nodes: expected different names with commas between them")
    for name in names:
        if not _HOST.fullmatch(name):
            raise Invalid(f"--nodes: {name!r} is not the name or address of a machine")


def _write_node(directory: Path, name: str, facts: Mapping[str, Any], *, has_controller: bool) -> None:
    directory.mkdir(mode=0o700)
    controllers = [str(each) for each in facts["controllers"]]
    number = controllers.index(f"{name}:9093") if has_controller else 0
    installed, state = Path(str(facts["install_dir"])), Path(str(facts["state_dir"]))
    tls = {
        "rpc.tls.ca": str(installed / "ca.pem"),
        "rpc.tls.certificate": str(installed / "node.pem"),
        "rpc.tls.key": str(installed / "node.key"),
    }
    if has_controller:
        controller = {
            "node.id": name,
            "data.dir": str(state / "controller"),
            "listen.rpc": "0.0.0.0:9093",
            "advertised.rpc": f"{name}:9093",
            "listen.http": "127.0.0.1:9652",
            "metastore.type": "etcd",
            "metastore.endpoints": from_its_own(number, facts["etcd"]),
            **tls,
        }
        (directory / "controller.toml").write_text(_toml(controller))
    broker = {
        "broker.id": name,
        "data.dir": str(state / "broker"),
        "controller.endpoints": from_its_own(number, controllers),
        "object_store.type": "s3",
        "object_store.s3.bucket": facts["bucket"],
        "listen.kafka": "0.0.0.0:9092",
        "advertised.kafka": f"{name}:9092",
        "listen.quic": "127.0.0.1:9092",
        "listen.peer": "0.0.0.0:9098",
        "listen.rustlog": "127.0.0.1:9096",
        "listen.mlog": "127.0.0.1:9095",
        "listen.logjam.router": "127.0.0.1:9604",
        "listen.logjam.pull": "127.0.0.1:9605",
        "listen.logjam.pub": "127.0.0.1:9606",
        "listen.logjam.live": "127.0.0.1:9607",
        "listen.admin": "127.0.0.1:9642",
        **tls,
    }
    (directory / "broker.toml").write_text(_toml(broker) + _KAFKA_CLOSED)


def _toml(settings: Mapping[str, object]) -> str:
    """JSON's strings and lists are TOML's too."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
