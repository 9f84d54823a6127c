from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seekserve_backend.engines.reference.cache import LatentPages, PackView, pack_layout, round_to_page_dtype

pytestmark = pytest.mark.needs_local


def pages(kv_dtype: str = "fp32", blocks: int = 8, block_tokens: int = 4) -> LatentPages:
    return LatentPages(
        layers=2,
        blocks=blocks,
        block_tokens=block_tokens,
        kv_lora_rank=6,
        rope_dim=2,
        kv_dtype=kv_dtype,
        compute_dtype=torch.float32,
    )


@pytest.mark.parametrize(("kv_dtype", "bytes_per_token"), [("fp32", 64), ("bf16", 32), ("fp8_e4m3", 16)])
def test_a_token_costs_one_latent_row_per_layer(kv_dtype: str, bytes_per_token: int) -> None:
    assert pages(kv_dtype).bytes_per_token == bytes_per_token


@pytest.mark.parametrize("kv_dtype", ["fp32", "bf16", "fp8_e4m3"])
def test_rows_come_back_as_a_page_of_that_dtype_holds_them(kv_dtype: str) -> None:
    rows = torch.randn(3, 8) * 100
    memory = pages(kv_dtype)
    memory.write(1, torch.tensor([9, 0, 31]), rows)
    kv, rope = memory.read(1, torch.tensor([31, 9]))
    kept = round_to_page_dtype(rows, kv_dtype).float()
    assert torch.equal(torch.cat((kv, rope), -1), kept[[2, 0]])
    assert not memory.read(0, torch.arange(32))[0].any()


def test_fp8_saturates_and_keeps_nan() -> None:
    row = torch.tensor([1e9, -1e9, 449.0, float("inf"), 448.0, float("nan")])
    kept = round_to_page_dtype(row, "fp8_e4m3").float()
    assert kept[:5].tolist() == [448.0, -448.0, 448.0, 448.0, 448.0]
    assert bool(kept[5].isnan())


def test_each_new_token_sees_its_own_request_up_to_itself() -> None:
    layout = pack_layout(torch.tensor([[2, 3], [5, 0]]), [3, 0], [2, 3], block_tokens=4, dtype=torch.float32)
    assert layout.positions.tolist() == [[3, 4, 0, 1, 2]]
    assert layout.write_slots.tolist() == [11, 12, 20, 21, 22]
    assert layout.read_slots.tolist() == [8, 9, 10, 11, 12, 20, 21, 22]
    assert (layout.mask[0, 0] == 0).int().tolist() == [
        [1, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 1, 1, 1],
    ]
    assert layout.last_rows.tolist() == [1, 4]


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 11), min_size=1, max_size=3), block_tokens=st.integers(1, 5), data=st.data())
def test_what_requests_write_in_pieces_they_read_back_whole(
    lengths: list[int], block_tokens: int, data: st.DataObject
) -> None:
    per_request = -(-max(lengths) // block_tokens)
    blocks = per_request * len(lengths)
    order = data.draw(st.permutations(range(blocks)))
    tables = torch.tensor(order).view(len(lengths), per_request)
    memory = pages(blocks=blocks, block_tokens=block_tokens)
    rows = [torch.randn(length, 8) for length in lengths]
    done = [0] * len(lengths)
    while any(d < length for d, length in zip(done, lengths, strict=True)):
        part = [i for i, length in enumerate(lengths) if done[i] < length]
        counts = [data.draw(st.integers(1, lengths[i] - done[i])) for i in part]
        layout = pack_layout(
            tables[part], [done[i] for i in part], counts, block_tokens=block_tokens, dtype=torch.float32
        )
        new = torch.cat([rows[i][done[i] : done[i] + n] for i, n in zip(part, counts, strict=True)])[None, None]
        kv, rope = PackView(memory, layout).update(new[..., :6], new[..., 6:], 1, kwargs={})
        for i, n in zip(part, counts, strict=True):
            done[i] += n
        expected = torch.cat([rows[i][: done[i]] for i in part])
        assert torch.equal(torch.cat((kv, rope), -1)[0, 0], expected)
