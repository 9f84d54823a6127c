"""One forward pass of the transformers model over a pack of chunks.

Packs requests end to end into a batch of one, without padding: positions and a four-dimensional mask keep them apart.
Decides nothing and keeps no request state; writes the latents of the chunks into the pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .batch import Chunk
from .cache import LatentPages, PackView, pack_layout
from .running import Running

__all__ = ["ModelRunner"]


class ModelRunner:
    def __init__(
        self, model: Any, *, kv_dtype: str, blocks: int, block_tokens: int, max_batch_size: int, max_seq_len_tokens: int
    ) -> None:
        config = model.config
        self._model = model
        self._dtype = model.dtype
        self.pages = LatentPages(
            layers=config.num_hidden_layers,
            blocks=blocks,
            block_tokens=block_tokens,
            kv_lora_rank=config.kv_lora_rank,
            rope_dim=config.qk_rope_head_dim,
            kv_dtype=kv_dtype,
            compute_dtype=model.dtype,
        )
        self._tables = torch.zeros((max_batch_size, -(-max_seq_len_tokens // block_tokens)), dtype=torch.int64)

    def assign(self, row: int, blocks: Sequence[int]) -> None:
        """Makes `blocks` the block table of the request in `row`."""
        self._tables[row, : len(blocks)] = torch.tensor(blocks)

    @torch.inference_mode()
    def logits(self, pack: Sequence[Chunk[Running]]) -> torch.Tensor:
        """[chunks of the pack, vocabulary] in float32: what follows the last token of each chunk."""
        layout = pack_layout(
            self._tables[[chunk.sequence.row for chunk in pack]],
            [chunk.start for chunk in pack],
            [chunk.tokens for chunk in pack],
            block_tokens=self.pages.block_tokens,
            dtype=self._dtype,
        )
        out = self._model(
            input_ids=torch.cat([chunk.sequence.ids[chunk.start : chunk.context_tokens] for chunk in pack])[None],
            position_ids=layout.positions,
            attention_mask=layout.mask,
            cache=PackView(self.pages, layout),
            use_cache=True,
            logits_to_keep=layout.last_rows,
        )
        logits: torch.Tensor = out.logits[0].float()
        return logits
