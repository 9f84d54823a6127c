"""The stock C++ `tensorrt_llm` Triton model as an engine, spoken to by BLS. Knows nothing of Triton's own module."""
