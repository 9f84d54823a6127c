"""The scheduling core that serves, against an engine in virtual time: one replica or many, one policy or a sweep.

Words used everywhere: a Row is a line of a trace, an Arrival a request made of it, an Outcome what became of it, the
plant is the simulated engine, a Replica a scheduler with its plant, a Case one run and its Figures what it was worth.
"""
