"""What the archive costs, what it would cost on bookies, and what other policies would change."""
