"""All methods by name. A new one is a file here and a line in ``METHODS``; everything else follows from that."""

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

METHODS: dict[str, type[Method]] = {
    "backward": Backward,
    "bootstrap_hard": BootstrapHard,
    "bootstrap_soft": BootstrapSoft,
    "ce": CE,
    "co_teaching": CoTeaching,
    "co_teaching_plus": CoTeachingPlus,
    "d2l": D2L,
    "decoupling": Decoupling,
    "dividemix": DivideMix,
    "dmi": DMI,
    "early_stopping": EarlyStopping,
    "elr": ELR,
    "elr_plus": ELRPlus,
    "forward": Forward,
    "gce": GCE,
    "gce_truncated": GCETruncated,
    "imae": IMAE,
    "incv": INCV,
    "joint_optim": JointOptim,
    "kl": KL,
    "mae": MAE,
    "m_dyr_h": MDYRH,
    "md_dyr_sh": MDDYRSH,
    "mean_teacher": MeanTeacher,
    "mentornet": MentorNet,
    "mixmatch": MixMatch,
    "mixup": Mixup,
    "noise_adaptation": NoiseAdaptation,
    "pencil": Pencil,
    "selfie": SELFIE,
    "sl": SL,
    "sop": SOP,
    "sop_plus": SOPPlus,
    "t_revision": TRevision,
    "temporal_ensembling": TemporalEnsembling,
    "trace": Trace,
}
