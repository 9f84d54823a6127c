"""Bundle -> files in memory -> Triton model repository on disk; and the backend's own folder."""
