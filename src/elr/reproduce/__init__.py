"""``elr reproduce``: every figure and table of the paper, by name, at the paper's scale or at that of a laptop."""
