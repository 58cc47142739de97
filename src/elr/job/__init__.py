"""From a configuration, data and a network to a finished run directory: what every door does."""
