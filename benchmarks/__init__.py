"""Measurements behind the claims in the docs. ``python -m benchmarks`` runs the speed ones."""
