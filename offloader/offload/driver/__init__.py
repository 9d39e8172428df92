"""The main process: it looks, decides, journals, and seals."""
