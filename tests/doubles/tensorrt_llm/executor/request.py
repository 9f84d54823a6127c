"""Adapters that a request may name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["LoRARequest", "PromptAdapterRequest"]


@dataclass(slots=True)
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str = ""
    lora_ckpt_source: str = "hf"

    def __post_init__(self) -> None:
        if self.lora_path is not None and not Path(self.lora_path or "/nonexistent").exists():
            raise ValueError(f"lora_path {self.lora_path!r} does not exist")
        if self.lora_ckpt_source not in ("hf", "nemo"):
            raise ValueError(f"lora_ckpt_source {self.lora_ckpt_source!r} is neither hf nor nemo")

    @property
    def adapter_id(self) -> int:
        return self.lora_int_id

    @property
    def name(self) -> str:
        return self.lora_name

    @property
    def path(self) -> str:
        return self.lora_path

    @property
    def ckpt_source(self) -> str:
        return self.lora_ckpt_source


@dataclass(slots=True)
class PromptAdapterRequest:
    prompt_adapter_name: str
    prompt_adapter_id: int
    prompt_adapter_local_path: str = ""

    def __post_init__(self) -> None:
        if not Path(self.prompt_adapter_local_path or "/nonexistent").exists():
            raise RuntimeError(f"prompt_adapter_local_path {self.prompt_adapter_local_path!r} does not exist")
