"""What transforms count. Plain ints; whoever scrapes reads them."""

from dataclasses import dataclass

from headrace.telemetry.metrics import counter, gauge


@dataclass(slots=True)
class TransformMetrics:
    wasm_batches_total: int = counter("Batches that a Wasm module has transformed.")
    wasm_records_total: int = counter("Records given to Wasm modules.")
    wasm_failures_total: int = counter("Batches that a Wasm module trapped on, or broke a limit with.")
    wasm_dead_letters_total: int = counter(
        "Batches that went to a dead-letter topic because a Wasm module failed on them."
    )
    wasm_busy_ms_total: int = counter("Milliseconds that worker threads spent on batches.")
    wasm_lines_lost_total: int = counter("Lines that Wasm modules logged and nobody kept.")
    wasm_waiting_bytes: int = gauge("Bytes of batches that wait for a Wasm module, or are in one.")
