"""`headrace broker`: one broker of several, in this process, until it is told to stop; and what it can be told to take over."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from headrace.cli.roles import Config, Set, load_for

app = App(
    name="broker",
    help="Run one broker of several; controllers tell it what to lead.",
    help_epilogue="""Example:

    headrace broker --config broker.toml
""",
)


@app.default
def broker(*, config: Config = None, data_dir: Path | None = None, set_: Set = None) -> int:
    """Run a broker until SIGTERM or Ctrl-C. It registers with the controllers at `controller.endpoints`.

    When it stops in order, others lead its partitions before it closes its doors.

    Parameters
    ----------
    config:
        TOML file of settings; docs/reference/settings.md lists the keys.
    data_dir:
        Directory of everything the broker keeps; `./data` unless said otherwise.
    set_:
        KEY=VALUE, over file and environment. Can be given more than once.
    """
    settings = load_for("broker", config=config, data_dir=data_dir, set_=set_)
    from headrace.node import run_broker

    return run_broker(settings)


@app.command
def adopt(
    *,
    wal: Path,
    of: Annotated[str, Parameter(name="--of")],
    config: Config = None,
    data_dir: Path | None = None,
    set_: Set = None,
) -> None:
    """Take over the WAL of a broker that is gone, from its disk or volume that was attached to this machine.

    The broker of this machine, which must be running, copies what object storage has not into its own WAL and leads those partitions. Brokers of
    one machine do that for each other without being told. The disk itself must be here, not a copy of it: its owner must not be
    able to write to it any more. Its owner may come back later, with an empty WAL.

    Parameters
    ----------
    wal:
        The directory that `wal.path` of the other broker named.
    of:
        The other broker's `broker.id`.
    config:
        Settings file of the broker that runs here.
    data_dir:
        Its directory, where that is not in the file.
    set_:
        KEY=VALUE, over file and environment. Can be given more than once.
    """
    settings = load_for("broker", config=config, data_dir=data_dir, set_=set_)
    from headrace.cli.wals import adopt_wal

    adopt_wal(wal, of, settings)
