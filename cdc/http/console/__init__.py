"""The operator's console: a static page, and what it asks beside the admin API. docs/console.md explains it."""
