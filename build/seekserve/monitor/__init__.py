"""The operator's view of running servers: `top`, `diagnose`, `collect` and `soak`. Everything here only looks."""
