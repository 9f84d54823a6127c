"""Chat conversations and the formats that DeepSeek's releases without a Jinja template put them into. Pure."""
