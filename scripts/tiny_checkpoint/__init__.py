"""How the tiny DeepSeek-V3 checkpoint is made: skills, tokenizer, file layout, training, measuring.

Only `scripts/train_tiny_checkpoint.py` and `scripts/eval_tiny_checkpoint.py` use it; the product never imports it.
"""
