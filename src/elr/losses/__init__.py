"""Losses as pure functions, one value per example, and ``ELRLoss`` for a loop of your own."""

from elr.losses.elr import ELRLoss, cross_entropy, elr_gradient, elr_loss, elr_penalty
from elr.losses.kl import target_cross_entropy

__all__ = ["ELRLoss", "cross_entropy", "elr_gradient", "elr_loss", "elr_penalty", "target_cross_entropy"]
