"""Objects and uploads of the bucket that nothing names: what they are, and how they go."""
