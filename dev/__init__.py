"""For those who work on the product: not in the wheel."""
