"""Policy blocks about answers that more than one connection may receive: repeats and streams that outlive theirs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RepeatCacheOptions", "ResumeOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatCacheOptions:
    """Whether equal requests share one run of the engine. Only of requests whose answer is determined by what they
    ask: greedy ones, searched beams, and explicit seeds where the engine promises to repeat them."""

    enabled: bool = False
    """Off by default: it keeps answers of users in memory after they were sent, and a load test that repeats its
    prompts would measure this cache instead of the engine."""
    across_tenants: bool = False
    """True: tenants share answers. The speed of an answer then tells a tenant that somebody asked the same before."""
    join: bool = True
    """A request that equals one in flight, of the same class and deadline, receives that one's answer as it comes."""
    max_joined: int = 64
    """Requests that may share one run; the next one gets a run of its own."""
    max_bytes: int = 67_108_864
    """Of kept results: text, log probabilities and bookkeeping. The oldest go first. 0: nothing is kept."""
    max_age_s: float = 300.0
    """Results older than this are gone."""
    keep_latest_share: float = 1.0
    """Part of all results so far that is kept, the latest ones; 0.05 is the operators' rule of thumb."""

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOptions:
    """What happens to a stream that asked to be resumable when its client is lost. Costs nothing unless asked for."""

    enabled: bool = True
    """False: a request that asks for it is refused by name."""
    resume_ttl_s: float = 30.0
    """How long a stream outlives its connection, and its end: an answer that was sent into a dead connection can
    still be fetched."""
    work_while_away: bool = True
    """False: a lost stream gives its place in the engine back. When its client returns, prompt and answer so far are
    read again (from the engine's prefix cache where it has one) and it goes on; the return stands in the queue like any
    request. Of greedy streams without penalties or a guide, which go on as they would have; all others work on."""
    max_streams: int = 256
    """Streams kept without a connection; above it the tenant with most of them loses its oldest."""
    max_bytes: int = 67_108_864
    """Their text, log probabilities and prompts."""

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}
