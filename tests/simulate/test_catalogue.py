"""Engines to simulate: by a name of the catalogue, or the bundle that is to be served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.repository.toy_bundle import toy_bundle, write_bundle
from tests.simulate.conftest import MODEL

from seekserve.errors import InputError
from seekserve.simulate.ask import DEFAULT_ENGINE
from seekserve.simulate.catalogue import engine_for, step_models


def test_the_default_engine_is_in_the_catalogue_and_the_scheduler_believes_in_it() -> None:
    engine = engine_for(DEFAULT_ENGINE, kv_tokens=1000, max_batch_size=7, noise=0.1)
    assert engine.plant == engine.controller == step_models()[DEFAULT_ENGINE]
    assert engine.kv.capacity_blocks * engine.kv.block_tokens == 960
    assert (engine.max_batch_size, engine.noise) == (7, 0.1)


def test_plant_and_controller_may_differ_or_the_controller_know_nothing() -> None:
    names = [*step_models()]
    other = engine_for(names[0], controller=names[1], kv_tokens=1000, max_batch_size=7)
    assert (other.plant, other.controller) == (step_models()[names[0]], step_models()[names[1]])
    assert engine_for(names[0], knows_model=False, kv_tokens=1000, max_batch_size=7).controller is None


def test_a_bundle_brings_its_own_model_cache_and_limits(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b", replace(toy_bundle(), step_model=MODEL))
    engine = engine_for(str(folder), kv_tokens=1, max_batch_size=1)
    assert engine.plant == MODEL
    assert engine.kv == toy_bundle().kv
    assert (engine.max_batch_size, engine.max_seq_len_tokens) == (16, 2048)


def test_a_bundle_without_a_step_model_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no step model"):
        engine_for(str(write_bundle(tmp_path / "b")), kv_tokens=1, max_batch_size=1)
