"""Whether tenants got what they are entitled to: engine time by price against max-min fair shares of all served."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from .price import Prices
from .records import Outcome
from .stats import jain, max_min_shares

__all__ = ["fairness", "served_price_ms"]


def served_price_ms(outcome: Outcome, prices: Prices) -> float:
    return _price_ms(outcome, prices, outcome.tokens)


def fairness(offered: Sequence[Outcome], served: Sequence[Outcome], prices: Prices) -> float:
    """Jain's index of served over entitled, a tenant each; NaN of one tenant."""
    wanted_ms: dict[str, float] = defaultdict(float)
    served_ms: dict[str, float] = defaultdict(float)
    for outcome in offered:
        wanted_ms[outcome.arrival.tenant] += _price_ms(outcome, prices, outcome.arrival.output_tokens)
    for outcome in served:
        served_ms[outcome.arrival.tenant] += served_price_ms(outcome, prices)
    entitled_ms = max_min_shares(wanted_ms, sum(served_ms.values()))
    return jain([served_ms[name] / ms for name, ms in entitled_ms.items() if ms > 0.0])


def _price_ms(outcome: Outcome, prices: Prices, output_tokens: int) -> float:
    arrival = outcome.arrival
    prompt_ms = prices.prompt_ms(arrival.prompt_tokens, arrival.cached_tokens)
    return prompt_ms + prices.output_ms(arrival.prompt_tokens, output_tokens)
