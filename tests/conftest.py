"""What every test run shares: requirement ids on record, nothing left to chance or to the caller's environment."""

import json
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings
from tests.support.environment import is_foreign

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / ".cache" / "spec-coverage.json"
PROPERTY = "requirements"

settings.register_profile(
    "headrace",
    deadline=None,
    derandomize=True,
    print_blob=True,
    # The other checks depend on what is drawn, which is always the same; this one depends on the machine.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headrace")
settings.register_profile("unshrunk", settings.get_profile("headrace"), phases=[Phase.explicit, Phase.generate])


def pytest_configure(config: pytest.Config) -> None:
    for name in filter(is_foreign, list(os.environ)):
        del os.environ[name]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it sends to the background like this, and programs that tests start would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _keep_loggers_fresh()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RequirementRecord(config))


def _keep_loggers_fresh() -> None:
    """A logger that is kept from its first use on would write into the captured, closed stream of an earlier test."""
    configure = structlog.configure

    def configure_uncached(**options: Any) -> None:  # Any: passed on as it came
        configure(**{**options, "cache_logger_on_first_use": False})

    structlog.configure = configure_uncached  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.hookimpl(tryfirst=True)  # Before xdist reads the groups.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and _shares_a_fixture(item):
            # On one worker: of tests dealt out one by one every worker would start the module's node, some seconds each.
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))
        ids = [name for marker in item.iter_markers("requirement") for name in marker.args]
        if ids:
            # Properties travel with the report, so this works under xdist too.
            item.user_properties.append((PROPERTY, ids))


def _shares_a_fixture(item: pytest.Function) -> bool:
    """Whether it needs something that is made once for its module. A group that was asked for by name is kept."""
    if item.get_closest_marker("xdist_group") is not None:
        return False
    return any(made[-1].scope == "module" for made in item._fixtureinfo.name2fixturedefs.values())


class RequirementRecord:
    """Writes which requirement ids the tests of this run passed and failed; `make coverage-of-spec` reads it."""

    def __init__(self, config: pytest.Config) -> None:
        self._arguments = list(config.invocation_params.args)
        self._tests: dict[str, dict[str, set[str]]] = {
            "passed": defaultdict(set),
            "failed": defaultdict(set),
            "skipped": defaultdict(set),
        }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        for name, ids in report.user_properties:
            if name == PROPERTY and isinstance(ids, list | tuple):
                for requirement in ids:
                    self._tests[report.outcome][requirement].add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if not any(self._tests.values()):
            return
        document = {
            "arguments": self._arguments,
            **{
                outcome: {name: sorted(tests[name]) for name in sorted(tests)} for outcome, tests in self._tests.items()
            },
        }
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(document, indent=1) + "\n")
