"""``elr bench``: methods side by side on the same data, noise and networks, under a budget that the table names."""
