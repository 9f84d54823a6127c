"""The operator's view of running servers: `top`, `diagnose`, `collect` and `soak`. All but a drill only look."""
