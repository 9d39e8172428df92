"""An archived topic's entries, as a server delivers them to stock consumers: blocking calls, for worker threads."""
