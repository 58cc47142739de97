"""Which labels are wrong, what they should be, and how many there are: from the files of one run, without torch."""
