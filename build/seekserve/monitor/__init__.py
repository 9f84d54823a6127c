"""The operator's view of running servers: `top`, `diagnose`, `collect` and `soak`, of which all but a drill only look,
and the files for Prometheus, Alertmanager and Grafana."""
