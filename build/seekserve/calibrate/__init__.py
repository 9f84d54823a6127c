"""A step model from measured engine steps, for machines and models that no table was made for."""

from .run import Calibration, CalibrationRequest, calibrate

__all__ = ["Calibration", "CalibrationRequest", "calibrate"]
