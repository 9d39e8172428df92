"""Which gateway has a topic: the newest claim in the bucket says so."""
