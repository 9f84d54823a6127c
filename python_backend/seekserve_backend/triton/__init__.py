"""The only folder that imports triton_python_backend_utils: model, wire (tensors <-> requests), install files."""
