"""`headrace pipeline`: from topics to tables. What it needs of Spark is imported when it is needed."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from headrace.cli.options import Json
from headrace.cli.output import note, progress, say, show_json, show_table
from headrace.cli.pipelines import load_settings, require_brokers, session
from headrace.errors import Invalid, NotFound, Unavailable
from headrace.pipeline.config_file import CONFIG_NAMES, CONFIG_VARIABLE, found_config

if TYPE_CHECKING:  # Spark takes a second to import.
    pass

app = App(
    name="pipeline",
    help="Land topics in tables with Spark.",
    help_epilogue="""Examples:

    headrace pipeline init
    headrace pipeline run
    headrace pipeline status
    headrace pipeline backfill orders --from 2026-01-01
    headrace pipeline report --output report.html
""",
)

ConfigFile = Annotated[
    Path | None,
    Parameter(name=["--config", "-c"], env_var=CONFIG_VARIABLE, help="The pipelines' configuration."),
]
NewConfigFile = Annotated[ConfigFile, Parameter(help="The file to write; `./headrace.yml` unless given.")]
Master = Annotated[
    str | None, Parameter(name="--master", help="Another Spark than the configured one, e.g. spark://host:7077.")
]
Remote = Annotated[str | None, Parameter(name="--remote", help="A Spark Connect server, e.g. sc://host:15002.")]


@app.command
def init(*, config: NewConfigFile = None, bootstrap: str = "localhost:9092", bucket: str = "data/objects") -> None:
    """Write a headrace.yml to start from.

    Parameters
    ----------
    bootstrap:
        Address of the Kafka door.
    bucket:
        Bucket or directory with the log's objects.
    """
    from headrace.pipeline.settings import PipelineConfig, SourceSettings
    from headrace.pipeline.template import write_template

    path = config or Path(CONFIG_NAMES[0])
    write_template(path, PipelineConfig(source=SourceSettings(bootstrap_servers=bootstrap, bucket=bucket)))
    say(f"wrote {path}; `headrace pipeline run` runs what is in it")


@app.command
def run(
    *names: str,
    config: ConfigFile = None,
    master: Master = None,
    remote: Remote = None,
    available_now: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Run pipelines until Ctrl-C, which lets the running batches finish.

    Parameters
    ----------
    names:
        Which; all of them unless given.
    available_now:
        Stop when everything that is there now has landed.
    """
    import signal

    from headrace.pipeline.java import require_java
    from headrace.pipeline.runner import Runner

    settings = load_settings(config, master, remote)
    chosen = list(names) or list(settings.pipelines)
    for name in chosen:
        settings.pipeline(name)
    require_java()
    try:
        require_brokers(settings)
    except Unavailable as error:
        if available_now:
            raise
        note(f"{error}; waiting for it")
    runner = Runner(settings, chosen, is_available_now=available_now, tell=note)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.stop())
    return runner.run()


@app.command(name="list")
def list_pipelines(*, config: ConfigFile = None, json: Json = False) -> None:
    """List pipelines and their tables."""
    settings = load_settings(config)
    rows = [
        {
            "pipeline": name,
            "kind": type(pipeline).__struct_config__.tag,
            "topics": pipeline.subscribe or pipeline.subscribePattern,
            "table": pipeline.table,
            "trigger_seconds": pipeline.trigger_seconds,
        }
        for name, pipeline in settings.pipelines.items()
    ]
    show_table(rows, columns=["pipeline", "kind", "topics", "table", "trigger_seconds"], as_json=json)


@app.command
def status(*, config: ConfigFile = None, json: Json = False) -> int:
    """Show what the pipeline process does: batches, rows per second, lag, failures."""
    from headrace.pipeline.status import read_status

    settings = load_settings(config)
    found = read_status(Path(settings.state_dir))
    if found is None:
        raise NotFound(f"no pipeline has run here yet: {settings.state_dir} is empty")
    if json:
        show_json(found)
        return 0
    age_s = datetime.now(UTC).timestamp() - found.written_ms / 1000
    if found.is_silent(now_ms=int(datetime.now(UTC).timestamp() * 1000)):
        say(
            f"process {found.process_id} was {found.state} when it was last seen, {_duration(age_s)} ago; it has ended or hangs"
        )
    else:
        say(f"process {found.process_id}, {found.state}, seen {_duration(age_s)} ago")
    rows = [
        {
            "pipeline": each.name,
            "state": each.state,
            "batch": each.batch if each.batch >= 0 else None,
            "rows": each.rows_total,
            "rows_per_second": round(each.rows_per_second),
            "lag": each.lag_total,
            "batch_seconds": round(each.batch_ms / 1000, 1),
            "restarts": each.restart_count,
            "error": each.error,
        }
        for each in found.pipelines
    ]
    columns = ["pipeline", "state", "batch", "rows", "rows_per_second", "batch_seconds", "lag", "restarts", "error"]
    show_table(rows, columns=columns, as_json=False)
    behind = [
        {"pipeline": each.name, "partition": place, "lag": count}
        for each in found.pipelines
        for place, count in each.lag.items()
    ]
    if behind:
        say("")
        show_table(behind, columns=["pipeline", "partition", "lag"], as_json=False)
    return 0


@app.command
def backfill(
    name: str,
    /,
    *,
    from_: Annotated[datetime | None, Parameter(name="--from")] = None,
    to: Annotated[datetime | None, Parameter(name="--to")] = None,
    starting_offsets: str = "earliest",
    ending_offsets: str = "latest",
    replace: Annotated[bool, Parameter(negative="")] = False,
    config: ConfigFile = None,
    master: Master = None,
    remote: Remote = None,
) -> None:
    """Land a range of the log that a pipeline's table does not hold yet, beside the live query.

    Parameters
    ----------
    name:
        The pipeline.
    from_:
        Records from this time on (UTC unless it says otherwise).
    to:
        Records before this time.
    starting_offsets:
        Or by offset, as `{"topic": {"0": 100}}`.
    ending_offsets:
        As `starting_offsets`, exclusive.
    replace:
        Make the range's rows anew even where they are there, by the pipeline's settings of today.
    """
    from headrace.pipeline.jobs.backfill import Backfill, Wanted
    from headrace.pipeline.queries import bind_tables, make_landing, open_tables

    settings = load_settings(config, master, remote)
    settings.pipeline(name)
    require_brokers(settings)
    with session(settings) as spark:
        landing = make_landing(name, settings.pipeline(name))
        tables = open_tables(settings)
        bind_tables(landing, tables)
        wanted = Wanted(
            startingOffsets=starting_offsets,
            endingOffsets=ending_offsets,
            startingTimestamp=_milliseconds(from_),
            endingTimestamp=_milliseconds(to),
        )
        job = Backfill(spark, settings, landing, wanted)
        if replace:
            say(f"{name}: {job.replace():,} rows made anew")
            return
        pieces = job.pieces(tables.open(landing.definitions()[0].name).coverage())
        total = sum(piece.record_count for piece in pieces)
        rows = 0
        with progress(f"backfill {name}", total) as advance:
            for piece in pieces:
                rows += job.land(piece)
                advance(piece.record_count)
    say(f"{name}: {rows:,} rows from {total:,} offsets")


@app.command
def compact(*names: str, config: ConfigFile = None, master: Master = None, remote: Remote = None) -> None:
    """Rewrite small files of closed partitions, expire snapshots, delete orphaned files.

    Parameters
    ----------
    names:
        Tables, e.g. bronze.records; those of the configured pipelines unless given.
    """
    from headrace.clock import SystemClock
    from headrace.pipeline.jobs.compact import compact as compact_table
    from headrace.pipeline.queries import open_tables

    settings = load_settings(config, master, remote)
    tables = open_tables(settings)
    ours = {table for pipeline in settings.pipelines.values() for table in pipeline.tables}
    there = tables.names()
    if unknown := [name for name in names if name not in there]:
        raise NotFound(f"no table {unknown[0]}; there are {', '.join(there) or 'none'}")
    chosen = {name: tables.open(name) for name in names or sorted(ours.intersection(there))}
    with session(settings) as spark:
        for name, table in chosen.items():
            done = compact_table(spark, table, SystemClock())
            say(
                f"{name}: {done.files_before} files became {done.files_after}, {done.snapshots_expired} snapshots "
                f"expired, {done.orphans_deleted} orphans deleted"
            )


@app.command(name="replay-dlq")
def replay_dlq(name: str, /, *, config: ConfigFile = None, master: Master = None, remote: Remote = None) -> None:
    """Judge a silver pipeline's dead letters again, after its schema was fixed.

    Parameters
    ----------
    name:
        The pipeline.
    """
    from headrace.clock import SystemClock
    from headrace.pipeline.jobs.replay import replay_dead_letters
    from headrace.pipeline.jobs.silver import Silver
    from headrace.pipeline.queries import make_landing, open_tables
    from headrace.pipeline.settings import SilverSettings

    settings = load_settings(config, master, remote)
    chosen = settings.pipeline(name)
    if not isinstance(chosen, SilverSettings):
        raise Invalid(f"{name} is not a silver pipeline; only those judge dead letters")
    with session(settings) as spark:
        landing = make_landing(name, chosen)
        assert isinstance(landing, Silver), "silver settings make silver pipelines"
        tables = open_tables(settings)
        main, dead = (tables.ensure(definition) for definition in landing.definitions())
        done = replay_dead_letters(spark, landing, main, dead, SystemClock())
    say(f"{name}: {done.accepted:,} accepted, {done.still_dead:,} still dead")


@app.command
def reset(name: str, /, *, config: ConfigFile = None, yes: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Forget how far a pipeline has read. Its tables stay, and so does what they cover: nothing lands twice.

    Parameters
    ----------
    name:
        The pipeline.
    yes:
        Do not ask.
    """
    import shutil

    from headrace.pipeline.checkpoint import local_path

    settings = load_settings(config)
    settings.pipeline(name)
    location = settings.checkpoint(name)
    path = local_path(location)
    if path is None:
        raise Invalid(f"the checkpoint is not on a local disk; delete {location} yourself")
    if not yes:
        raise Invalid(f"this deletes {path}; add --yes if that is meant")
    shutil.rmtree(path, ignore_errors=True)
    say(f"{name} will start over at {settings.pipeline(name).startingOffsets}")


@app.command
def quality(*, config: ConfigFile = None, master: Master = None, remote: Remote = None, json: Json = False) -> int:
    """Check tables against the log: counts, continuity, nulls, freshness. Exit status 1 when a check fails."""
    from headrace.clock import SystemClock
    from headrace.pipeline.jobs.quality import check_all

    settings = load_settings(config, master, remote)
    require_brokers(settings)
    with session(settings) as spark:
        findings = check_all(spark, settings, SystemClock())
    rows = [
        {
            "pipeline": finding.pipeline,
            "check": finding.check,
            "subject": finding.subject,
            "status": finding.status,
            "value": finding.value if json else round(finding.value, 3),
            "detail": finding.detail,
        }
        for finding in findings
    ]
    show_table(rows, columns=["pipeline", "check", "subject", "status", "value", "detail"], as_json=json)
    return int(any(finding.status == "fail" for finding in findings))


@app.command
def report(
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])] = Path("headrace-report.html"),
    config: ConfigFile = None,
    master: Master = None,
    remote: Remote = None,
) -> None:
    """Write one HTML page: lag, throughput, latency percentiles, apdex, errors per app and action.

    Parameters
    ----------
    output:
        The file to write.
    """
    from headrace.clock import SystemClock
    from headrace.pipeline.jobs.report import write_report

    settings = load_settings(config, master, remote)
    with session(settings) as spark:
        write_report(spark, settings, output, SystemClock())
    say(f"wrote {output}")


@app.command
def warm(*, config: ConfigFile = None) -> None:
    """Keep the classes that Spark loads, so that it starts in half the time.

    The first command that needs Spark leaves that behind anyway, soon after its end. Where nothing outlives a command, as
    when an image is built, this does it now.
    """
    from headrace.pipeline.class_archive import archive_for
    from headrace.pipeline.java import require_java

    require_java()
    path = config or found_config()
    archive = archive_for(load_settings(path).spark.conf if path else {})
    if archive is None:
        raise Invalid("this user has no home directory to keep anything in; set XDG_CACHE_HOME")
    note("running a small Spark (20 to 40 seconds)")
    say(f"Spark's classes are in {archive.make()}")


def _duration(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _milliseconds(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
