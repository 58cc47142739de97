"""Several processes that train together have one memory of every example."""

import os
import warnings
from pathlib import Path

import pytest
import torch
from torch import distributed as dist
from torch import multiprocessing as processes

import elr

N, C, RANKS = 20, 3, 2
SIZES = ((4, 4), (3, 2), (1, 0))  # rows of either process in each step; the last ones are not alike


def steps():
    """(rows, logits, labels) of each process, step by step."""
    g = torch.Generator().manual_seed(0)
    for sizes in SIZES:
        order = torch.randperm(N, generator=g).split([*sizes, N - sum(sizes)])
        yield [(rows, torch.randn(len(rows), C, generator=g), rows % C) for rows in order[:RANKS]]


def work(rank: int, folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    try:
        criterion = elr.ELRLoss(N, C, group=dist.group.WORLD)
        losses = [criterion(z, y, rows) for rows, z, y in (parts[rank] for parts in steps())]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            elr.ELRLoss(N, C)
        found = {"targets": criterion.state_dict(), "losses": losses, "warned": [str(w.message) for w in caught]}
        torch.save(found, f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    processes.spawn(work, (str(folder),), nprocs=RANKS)
    return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(RANKS)]


def test_targets_and_losses_are_those_of_one_process_with_all_rows(found):
    alone = elr.ELRLoss(N, C, reduction="none")
    for step, parts in enumerate(steps()):
        rows, z, y = (torch.cat(column) for column in zip(*parts, strict=True))
        expected = alone(z, y, rows).split([len(part[0]) for part in parts])
        for rank, own in enumerate(expected):
            if len(own):
                torch.testing.assert_close(found[rank]["losses"][step], own.mean())
    for result in found:
        torch.testing.assert_close(result["targets"], alone.state_dict(), rtol=0, atol=0)


def test_a_loss_that_is_told_of_no_group_says_that_it_remembers_alone(found):
    for result in found:
        assert [message[:59] for message in result["warned"]] == [
            "ELRLoss remembers what this process predicts and no other: "
        ]
