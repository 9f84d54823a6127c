"""Inputs + ModelFacts -> Plan: resolved, frozen, every value with its source."""
