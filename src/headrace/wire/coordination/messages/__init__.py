"""One module per message, generated."""
