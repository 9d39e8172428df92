"""What is decided, and nothing else: pure functions over frozen values."""
