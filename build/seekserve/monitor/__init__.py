"""What the operator sees: Prometheus, Alertmanager and Grafana files from data."""
