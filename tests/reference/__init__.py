"""The algorithms as the papers print them: loops over examples and classes, no concern for speed or extreme numbers."""
