"""One port (`port.py`), several adapters: reference (CPU), later trtllm, synthetic and triton (BLS)."""
