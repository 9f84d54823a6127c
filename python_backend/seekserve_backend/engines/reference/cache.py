"""The paged latent KV cache: one row of `kv_lora_rank + qk_rope_head_dim` numbers for each token and layer.

transformers' MLA layers hand their compressed latents to `cache.update` and expand what it returns, so this is all that
has to be kept. `LatentPages` owns the memory; a `PackView` is the cache object for one forward pass over several
requests laid end to end. Which block belongs to whom is decided in `blocks.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["E4M3_MAX", "LatentPages", "PackLayout", "PackView", "pack_layout", "round_to_page_dtype"]

E4M3_MAX = 448.0
_PAGE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8_e4m3": torch.float8_e4m3fn}


def round_to_page_dtype(latents: torch.Tensor, kv_dtype: str) -> torch.Tensor:
    """`latents` as a page of that dtype holds them. FP8 pages have no scale and saturate."""
    if kv_dtype == "fp8_e4m3":
        latents = latents.float().clamp(-E4M3_MAX, E4M3_MAX)
    return latents.to(_PAGE_DTYPES[kv_dtype])


class LatentPages:
    """Memory of all blocks: [layers, blocks, block_tokens, row]. A slot is block * block_tokens + offset."""

    def __init__(
        self,
        *,
        layers: int,
        blocks: int,
        block_tokens: int,
        kv_lora_rank: int,
        rope_dim: int,
        kv_dtype: str,
        compute_dtype: torch.dtype,
    ) -> None:
        self.kv_dtype = kv_dtype
        self.block_tokens = block_tokens
        self._split = [kv_lora_rank, rope_dim]
        self._compute_dtype = compute_dtype
        self._page_dtype = _PAGE_DTYPES[kv_dtype]
        # Bytes, because torch's CPU gather and scatter have no float8 kernels.
        stored = torch.uint8 if kv_dtype == "fp8_e4m3" else self._page_dtype
        self.pages = torch.zeros((layers, blocks, block_tokens, kv_lora_rank + rope_dim), dtype=stored)
        self._rows = [layer.view(blocks * block_tokens, -1) for layer in self.pages]

    @property
    def bytes_per_token(self) -> int:
        layers, _, _, row = self.pages.shape
        return int(layers * row * self.pages.element_size())

    def write(self, layer: int, slots: torch.Tensor, latents: torch.Tensor) -> None:
        stored = round_to_page_dtype(latents, self.kv_dtype)
        self._rows[layer].index_copy_(0, slots, stored.view(self.pages.dtype))

    def read(self, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self._rows[layer].index_select(0, slots).view(self._page_dtype).to(self._compute_dtype)
        kv, rope = rows.split(self._split, dim=-1)
        return kv, rope


@dataclass(frozen=True, slots=True, kw_only=True)
class PackLayout:
    """Tensors that describe one packed pass: N new tokens, S tokens of context, all requests end to end."""

    positions: torch.Tensor
    """[1, N], position of each new token in its own request."""
    mask: torch.Tensor
    """[1, 1, N, S], additive: each token sees its own request up to itself."""
    write_slots: torch.Tensor
    read_slots: torch.Tensor
    last_rows: torch.Tensor
    """[requests], the row of each request's last new token."""


def pack_layout(
    tables: torch.Tensor, starts: Sequence[int], counts: Sequence[int], *, block_tokens: int, dtype: torch.dtype
) -> PackLayout:
    """`tables[i]` is request i's block table; its tokens `starts[i]` to `starts[i] + counts[i]` are new."""
    start, count = torch.tensor(starts), torch.tensor(counts)
    q_owner, q_position = _ragged(start, count)
    k_owner, k_position = _ragged(torch.zeros_like(start), start + count)
    visible = (q_owner[:, None] == k_owner) & (k_position <= q_position[:, None])
    mask = torch.zeros(visible.shape, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min)
    return PackLayout(
        positions=q_position[None],
        mask=mask[None, None],
        write_slots=_slots(tables, q_owner, q_position, block_tokens),
        read_slots=_slots(tables, k_owner, k_position, block_tokens),
        last_rows=count.cumsum(0) - 1,
    )


class PackView:
    """What the model's layers see as their cache during one packed pass.

    Not a subclass of transformers' `Cache`: with explicit positions and a four-dimensional mask the model asks for
    `update` alone.
    """

    def __init__(self, pages: LatentPages, layout: PackLayout) -> None:
        self._pages = pages
        self._write_slots = layout.write_slots
        self._read_slots = layout.read_slots

    def update(
        self, kv: torch.Tensor, rope: torch.Tensor, layer_idx: int, **_ignored: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """[1, 1, N, *] new latents in, [1, 1, S, *] latents of the whole context out, as the pages hold them."""
        self._pages.write(layer_idx, self._write_slots, torch.cat((kv[0, 0], rope[0, 0]), dim=-1))
        all_kv, all_rope = self._pages.read(layer_idx, self._read_slots)
        return all_kv[None, None], all_rope[None, None]


def _ragged(start: torch.Tensor, count: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For ranges `start[i] .. start[i] + count[i]` laid end to end: the range and the value of each element."""
    owner = torch.repeat_interleave(count)
    before = count.cumsum(0) - count
    return owner, torch.arange(owner.numel()) + (start - before)[owner]


def _slots(tables: torch.Tensor, owner: torch.Tensor, position: torch.Tensor, block_tokens: int) -> torch.Tensor:
    block = torch.div(position, block_tokens, rounding_mode="floor")
    return tables[owner, block] * block_tokens + position % block_tokens
