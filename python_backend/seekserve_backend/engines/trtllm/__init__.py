"""TensorRT-LLM behind the port: its LLM API in this process, driven from an event loop of the adapter's own."""
