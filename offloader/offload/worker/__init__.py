"""An executor: it reads a slice, cuts it into parts, and uploads them."""
