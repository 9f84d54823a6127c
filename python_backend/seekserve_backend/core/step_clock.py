"""Step times when nobody predicted any: a straight line through what was measured, older steps counting less.

Used when a bundle carries no step model (an unknown GPU): the first guess is replaced within some tens of steps.
"""

from __future__ import annotations

from ..contract.step_model import StepModel

__all__ = ["GUESS", "LearnedSteps", "ModelledSteps", "Steps"]

GUESS = StepModel(
    base_points=((1, 10.0), (1000, 100.0)), kv_read_ms_per_token=0.0, attention_ms_per_token2=0.0, source="a guess"
)
_KEEP = 0.998
_ENOUGH = 12.0
_LEAST_MS = 0.01


class ModelledSteps:
    """A step model with its base curve kept by token count: it is asked for at every step."""

    is_learned = False

    def __init__(self, model: StepModel) -> None:
        self._model = model
        self._base_ms: list[float] = []
        self.kv_read_ms_per_token = model.kv_read_ms_per_token
        self.attention_ms_per_token2 = model.attention_ms_per_token2

    def base_ms(self, tokens: int) -> float:
        try:
            return self._base_ms[tokens]
        except IndexError:
            return self._grow(tokens)

    def _grow(self, tokens: int) -> float:
        cache = self._base_ms
        while len(cache) <= tokens:
            cache.append(max(_LEAST_MS, self._model.base_ms(max(len(cache), 1))))
        return cache[tokens]

    def learn(self, tokens: int, step_ms: float) -> None:
        """A model is corrected by the bias alone."""


class LearnedSteps:
    """`base_ms` = intercept + slope * tokens, by decayed least squares; both stay at or above zero."""

    is_learned = True
    kv_read_ms_per_token = 0.0
    attention_ms_per_token2 = 0.0

    def __init__(self) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0
        self._slope_ms = (GUESS.base_points[1][1] - GUESS.base_points[0][1]) / (GUESS.base_points[1][0] - 1)
        self._intercept_ms = GUESS.base_points[0][1]

    def base_ms(self, tokens: int) -> float:
        return max(_LEAST_MS, self._intercept_ms + self._slope_ms * tokens)

    def learn(self, tokens: int, step_ms: float) -> None:
        self._weight = self._weight * _KEEP + 1.0
        self._x = self._x * _KEEP + tokens
        self._y = self._y * _KEEP + step_ms
        self._xx = self._xx * _KEEP + tokens * tokens
        self._xy = self._xy * _KEEP + tokens * step_ms
        if self._weight < _ENOUGH:
            return
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        spread = self._xx / self._weight - mean_x * mean_x
        if spread > 0.25:  # steps of one size say nothing about the slope
            slope = (self._xy / self._weight - mean_x * mean_y) / spread
            self._slope_ms = min(max(slope, 0.0), mean_y / max(mean_x, 1.0))
        self._intercept_ms = max(0.0, mean_y - self._slope_ms * mean_x)


Steps = ModelledSteps | LearnedSteps
