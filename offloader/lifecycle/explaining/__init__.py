"""Why data is still there, in sentences: facts in, words out."""
