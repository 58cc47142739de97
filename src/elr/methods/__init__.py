"""All methods by name. A new one is a file here and a line in its family; everything else follows from that."""

from elr.methods.backward import Backward
from elr.methods.base import Method
from elr.methods.bootstrap_hard import BootstrapHard
from elr.methods.bootstrap_soft import BootstrapSoft
from elr.methods.ce import CE, EarlyStopping
from elr.methods.co_teaching import CoTeaching
from elr.methods.co_teaching_plus import CoTeachingPlus
from elr.methods.d2l import D2L
from elr.methods.decoupling import Decoupling
from elr.methods.dividemix import DivideMix
from elr.methods.dmi import DMI
from elr.methods.elr import ELR
from elr.methods.elr_distill import ELRDistill
from elr.methods.elr_plus import ELRPlus
from elr.methods.forward import Forward
from elr.methods.gce import GCE
from elr.methods.gce_truncated import GCETruncated
from elr.methods.imae import IMAE
from elr.methods.incv import INCV
from elr.methods.joint_optim import JointOptim
from elr.methods.kl import KL
from elr.methods.m_dyr_h import MDYRH
from elr.methods.mae import MAE
from elr.methods.md_dyr_sh import MDDYRSH
from elr.methods.mean_teacher import MeanTeacher
from elr.methods.mentornet import MentorNet
from elr.methods.mixmatch import MixMatch
from elr.methods.mixup import Mixup
from elr.methods.noise_adaptation import NoiseAdaptation
from elr.methods.pencil import Pencil
from elr.methods.selfie import SELFIE
from elr.methods.sl import SL
from elr.methods.sop import SOP
from elr.methods.sop_plus import SOPPlus
from elr.methods.t_revision import TRevision
from elr.methods.temporal_ensembling import TemporalEnsembling
from elr.methods.trace import Trace

FAMILIES: dict[str, dict[str, type[Method]]] = {
    "the paper's, and the baselines": {
        "elr": ELR,
        "elr_plus": ELRPlus,
        "elr_distill": ELRDistill,
        "ce": CE,
        "early_stopping": EarlyStopping,
    },
    "losses that tolerate wrong labels": {
        "bootstrap_soft": BootstrapSoft,
        "bootstrap_hard": BootstrapHard,
        "gce": GCE,
        "gce_truncated": GCETruncated,
        "sl": SL,
        "mae": MAE,
        "imae": IMAE,
        "dmi": DMI,
    },
    "models of the noise": {
        "forward": Forward,
        "backward": Backward,
        "noise_adaptation": NoiseAdaptation,
        "t_revision": TRevision,
        "trace": Trace,
        "sop": SOP,
        "sop_plus": SOPPlus,
    },
    "targets from earlier predictions, mixed inputs": {
        "kl": KL,
        "temporal_ensembling": TemporalEnsembling,
        "mean_teacher": MeanTeacher,
        "mixup": Mixup,
    },
    "selection of examples": {
        "decoupling": Decoupling,
        "mentornet": MentorNet,
        "co_teaching": CoTeaching,
        "co_teaching_plus": CoTeachingPlus,
        "incv": INCV,
        "selfie": SELFIE,
    },
    "correction of labels": {
        "joint_optim": JointOptim,
        "pencil": Pencil,
        "m_dyr_h": MDYRH,
        "md_dyr_sh": MDDYRSH,
        "d2l": D2L,
    },
    "semi-supervised: labels that look wrong are dropped and guessed": {
        "mixmatch": MixMatch,
        "dividemix": DivideMix,
    },
}
METHODS: dict[str, type[Method]] = {name: cls for family in FAMILIES.values() for name, cls in family.items()}
