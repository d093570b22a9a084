"""Jobs: each joins a source, steps and tables. Nothing is decided here that a step or a table could decide."""
