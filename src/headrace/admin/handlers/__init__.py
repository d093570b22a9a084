"""One file per thing the admin door answers."""
