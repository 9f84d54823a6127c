"""seekserve: from a DeepSeek checkpoint to a service that keeps its promises under load.

Glossary, used alike everywhere: Request, Queue, Bucket, Class, Price, Credit, Gate, Pressure, Rung, Breaker, Plan,
Finding, Bundle, Repository, Engine, Replica. This package is the build-time half; `seekserve_backend` is the run-time
half and never imports this one.
"""

__version__ = "0.1.0"
