"""Load on a served model, from outside: open loop, honest about its own delay, judged as a simulation is.

Words: a Shot is one request that is to be sent at a given time, a Recording what came of a run of them.
"""
