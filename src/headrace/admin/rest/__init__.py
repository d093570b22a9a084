"""The API over HTTP, below /api/v1."""
