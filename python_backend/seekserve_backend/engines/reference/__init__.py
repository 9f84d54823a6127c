"""The CPU engine: transformers' own DeepSeek V2/V3 classes over a paged latent KV cache of ours."""
