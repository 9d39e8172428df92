"""PIP-186's system topics: a mirror of what is deleted, and a door for candidates. Never the truth, never believed."""
