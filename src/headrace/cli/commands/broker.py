"""`headrace broker`: one broker of several, in this process, until it is told to stop."""

from pathlib import Path

from cyclopts import App

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
