"""The tokenizer of the tiny checkpoint: byte-level BPE, digits alone, DeepSeek's special tokens and chat template.

Merges are learnt from ASCII text only, so each CJK character takes three tokens and each emoji at least four:
the detokeniser of the product meets incomplete characters all the time. The template writes BOS itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BAR, GAP = "\uff5c", "\u2581"
BOS = f"<{BAR}begin{GAP}of{GAP}sentence{BAR}>"
EOS = f"<{BAR}end{GAP}of{GAP}sentence{BAR}>"
PAD = f"<{BAR}{GAP}pad{GAP}{BAR}>"
USER = f"<{BAR}User{BAR}>"
ASSISTANT = f"<{BAR}Assistant{BAR}>"
THINK_TOKENS = ("<think>", "</think>")

BOS_ID, EOS_ID, PAD_ID = 0, 1, 2
LEARNT_ROWS = 500
VOCABULARY_ROWS = 512
MAX_CONTEXT_TOKENS = 4096

CHAT_TEMPLATE = (
    "{%- if add_generation_prompt is not defined %}{% set add_generation_prompt = false %}{% endif -%}"
    "{%- set ns = namespace(system='') -%}"
    "{%- for m in messages if m['role'] == 'system' -%}"
    "{%- set ns.system = ns.system + ('\\n\\n' if ns.system else '') + m['content'] -%}"
    "{%- endfor -%}"
    "{{- bos_token + ns.system -}}"
    "{%- for m in messages -%}"
    f"{{%- if m['role'] == 'user' -%}}{{{{- '{USER}' + m['content'] -}}}}"
    f"{{%- elif m['role'] == 'assistant' -%}}{{{{- '{ASSISTANT}' + m['content'] + eos_token -}}}}"
    "{%- elif m['role'] != 'system' -%}"
    "{{- raise_exception('this checkpoint knows the roles system, user and assistant, not ' + m['role']) -}}"
    "{%- endif -%}"
    "{%- endfor -%}"
    f"{{%- if add_generation_prompt -%}}{{{{- '{ASSISTANT}' -}}}}{{%- endif -%}}"
)


def train_tokenizer(corpus: Iterable[str]) -> Any:
    """Return a `tokenizers.Tokenizer`; ids 0, 1, 2 are BOS, EOS and pad, the turn tokens follow the learnt rows."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=LEARNT_ROWS,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in (BOS, EOS, PAD)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for text in corpus if text.isascii()), trainer)
    # As in the official files, turn and thinking tokens are not "special": skip_special_tokens leaves them in the text.
    tokenizer.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token in (USER, ASSISTANT, *THINK_TOKENS)]
    )
    if tokenizer.get_vocab_size() != LEARNT_ROWS + 4:
        raise ValueError(
            f"the corpus gives {tokenizer.get_vocab_size()} token ids, {LEARNT_ROWS + 4} wanted: enlarge it"
        )
    return tokenizer


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "add_bos_token": False,
        "add_eos_token": False,
        "bos_token": BOS,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": EOS,
        "model_max_length": MAX_CONTEXT_TOKENS,
        "pad_token": PAD,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
