"""What the application decides. Pure functions over frozen values."""
