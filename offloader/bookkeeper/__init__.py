"""A BookKeeper client: reads ledgers from their bookies, and closes those of dead writers safely."""
