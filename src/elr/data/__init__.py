"""Where inputs and labels come from, and how batches are made of them."""
