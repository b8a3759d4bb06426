"""Texts to vectors and pairs to scores: `BiEncoder` and `CrossEncoder` over one `Runtime` and one encoding pipeline."""

from munjang.encoders.bi import BiEncoder, Encoded
from munjang.encoders.cross import Calibration, CrossEncoder, Predicted, Ranked

__all__ = ["BiEncoder", "Calibration", "CrossEncoder", "Encoded", "Predicted", "Ranked"]
