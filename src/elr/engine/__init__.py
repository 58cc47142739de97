"""The four loops around the only ``backward()``, and what they need: optimizer, schedules, checkpoints, evaluation."""
