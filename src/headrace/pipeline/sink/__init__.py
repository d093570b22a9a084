"""The sink `headrace` for Spark: micro-batches back into topics, exactly once for readers of committed records.

`rows` checks and packs what tasks hand over, `transaction` produces it, `spark` holds the adapters that Spark calls.
"""
