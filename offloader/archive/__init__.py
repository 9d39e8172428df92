"""Reading back what is offloaded, and checking it."""
