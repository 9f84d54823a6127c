"""Launch plans: which processes serve a repository, where each runs and why, decided before anything starts.

`choose` decides from what the repository needs and what the user wants; `make_plan` writes the decision out as argument
lists. Both are pure: machine facts are arguments, and nothing is started, written or looked up here.
"""

from __future__ import annotations

from seekserve.server.plans.choose import Choice, choose
from seekserve.server.plans.make import make_plan
from seekserve.server.plans.plan import LaunchPlan, Rank
from seekserve.server.plans.wish import MachineFacts, PlanWish

__all__ = ["Choice", "LaunchPlan", "MachineFacts", "PlanWish", "Rank", "choose", "make_plan"]
