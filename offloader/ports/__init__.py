"""What the core asks of the world, as interfaces. Pure."""
