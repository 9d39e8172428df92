"""A topic's catalog made again: `gather` reads what is left, `propose` (pure) says what the catalog should be, `replace` writes it."""
