"""The operator's view of running servers: `top`, `diagnose`, `collect` and `soak`, which only look, and the files for
Prometheus, Alertmanager and Grafana."""
