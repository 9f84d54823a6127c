"""Checkpoint + Plan -> engine bundle on disk, one module for each kind of engine."""
