"""Pure scheduling: standard library only, no I/O, no threads, no clock, no logging. Time is an argument, in seconds.

The core decides and returns data, the service acts on it. Nothing here depends on set or hash order.
"""
