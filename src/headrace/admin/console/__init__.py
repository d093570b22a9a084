"""The node's own pages: HTML rendered here, from the API's answers and nothing else. See docs/console.md."""
