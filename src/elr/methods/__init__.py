"""All methods by name. A new one is a file here and a line in ``METHODS``; everything else follows from that."""

from elr.methods.base import Method
from elr.methods.ce import CE, EarlyStopping
from elr.methods.elr import ELR
from elr.methods.elr_plus import ELRPlus
from elr.methods.kl import KL

METHODS: dict[str, type[Method]] = {
    "ce": CE,
    "early_stopping": EarlyStopping,
    "elr": ELR,
    "elr_plus": ELRPlus,
    "kl": KL,
}
