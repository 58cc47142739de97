"""Pages, and what writes their generated parts."""
