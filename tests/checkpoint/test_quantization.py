"""What configuration files declare about precision, in our words."""

from __future__ import annotations

import pytest

from seekserve.checkpoint.quantization import from_modelopt


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("FP8", "fp8_tensor"),
        ("FP8_BLOCK_SCALES", "fp8_block"),
        ("NVFP4", "nvfp4"),
        ("W4A8_AWQ", "w4a8_awq"),
        ("w4a8_awq", "w4a8_awq"),
        ("MIXED_PRECISION", "mixed"),
        ("W4A16_AWQ", "w4a16_awq"),
    ],
)
def test_modelopt_s_algorithm_has_the_word_that_plans_and_tables_use(algorithm: str, kind: str) -> None:
    assert from_modelopt({"quant_algo": algorithm}, "hf_quant_config.json").kind == kind
