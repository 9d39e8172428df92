"""Topics whose data outlive their use: those that nobody has loaded."""
