"""Losses as pure functions, one value per example, and ``ELRLoss`` for a loop of your own."""

from elr.losses.bootstrap import bootstrap_hard_loss, bootstrap_soft_loss
from elr.losses.consistency import prediction_kl, prediction_mse
from elr.losses.dmi import dmi_loss
from elr.losses.elr import ELRLoss, cross_entropy, elr_gradient, elr_loss, elr_penalty
from elr.losses.gce import gce_loss, truncated_gce_loss
from elr.losses.imae import imae_loss
from elr.losses.kl import target_cross_entropy
from elr.losses.mae import mae_loss
from elr.losses.semi import balance_penalty, negative_entropy
from elr.losses.sl import sl_loss
from elr.losses.sop import class_balance, sop_loss

__all__ = [
    "ELRLoss",
    "balance_penalty",
    "bootstrap_hard_loss",
    "bootstrap_soft_loss",
    "class_balance",
    "cross_entropy",
    "dmi_loss",
    "elr_gradient",
    "elr_loss",
    "elr_penalty",
    "gce_loss",
    "imae_loss",
    "mae_loss",
    "negative_entropy",
    "prediction_kl",
    "prediction_mse",
    "sl_loss",
    "sop_loss",
    "target_cross_entropy",
    "truncated_gce_loss",
]
