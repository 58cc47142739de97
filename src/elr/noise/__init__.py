"""Wrong labels made on purpose, so that what a method does can be measured."""

from elr.noise.clean import Clean
from elr.noise.config import RATED, NoiseConfig
from elr.noise.inject import NOISES
from elr.noise.manifest import NoiseManifest
from elr.noise.transition import read_matrix, transition

__all__ = ["NOISES", "RATED", "Clean", "NoiseConfig", "NoiseManifest", "read_matrix", "transition"]
