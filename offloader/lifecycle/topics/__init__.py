"""Topics: what of their data nobody needs any more, and what holds it back."""
