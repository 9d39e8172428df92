"""A topic's catalog made again: `gather` reads the records beside the segments, `propose` (pure) puts them in order,
`write` begins a new generation with them."""
