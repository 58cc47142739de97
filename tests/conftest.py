"""Shared by all tests: one thread, so that sums have one order and several test processes do not fight for cores."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def g() -> torch.Generator:
    """A seeded generator for draws in a test."""
    return torch.Generator().manual_seed(0)
