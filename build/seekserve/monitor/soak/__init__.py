"""Trying a deployment: load at what was planned, at twice that, and with things going wrong; then pass or fail."""
