"""One module per noun. Each has an `app`, and is imported only when its command is used."""
