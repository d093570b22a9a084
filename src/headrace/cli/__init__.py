"""The command line: `commands/` decide, `output` renders."""
