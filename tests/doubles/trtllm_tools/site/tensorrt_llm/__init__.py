"""Stands where tensorrt_llm would: found by the interpreter's metadata, and never to be imported by a build."""

raise ImportError("a build must not import tensorrt_llm: that takes minutes and wants a GPU")
