"""Steps: pure functions from DataFrame to DataFrame, one per file, with their schemas in `pipeline.schemas`."""
