"""The numbers of a controller."""

from headrace.control.controller.driver import Controller
from headrace.telemetry.metrics import Family, Metrics


def register_controller_metrics(metrics: Metrics, controller: Controller) -> None:
    metrics.register_family(
        Family(
            name="headrace_controller_active",
            sentence="1 on the controller that decides, 0 on the others.",
            samples=lambda: [((), float(controller.office.is_held))],
        )
    )
