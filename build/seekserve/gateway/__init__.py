"""The OpenAI-compatible HTTP front of one or several tritonservers.

    params, ask, messages     the table of accepted fields; a checked body -> requests of the typed client
    door, keys                who may ask, as whom, how often, by when
    pool, load, scrape, ring  backends: which are up, how busy they are, which one is next
    choice, merge             one choice, tried once more elsewhere; several choices as one stream
    bodies, chat_stream       OpenAI's objects; reasoning, content and tool calls apart
    problems, http, sinks     what goes wrong as HTTP says it; ASGI; where the pieces go
    answer, app, run          one request from headers to last byte; the routes; the process
    record, logs, metrics, tracing   what is known of a request, and who is told

Importing it imports gRPC and Starlette: the command line does so inside the command.
"""

from __future__ import annotations
