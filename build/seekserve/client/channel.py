"""Where the server is and how to reach it: the URL, the channel options and the calls, for both clients.

Built on gRPC itself with tritonclient's protobuf messages, not on tritonclient's client classes: their asyncio stream
drops the request for an empty final response and refuses reserved parameters, their sync stream hides the call behind a
thread and a callback, and neither has an idle deadline. ModelStreamInfer carries one request per stream here, so it is
called as unary-stream (the same bytes on the wire: one message, then half-close), which saves a thread or a task per
request; an error can only mean this request, and a cancel only this one.
"""

from __future__ import annotations

import re
from typing import Any

from tritonclient.grpc import service_pb2

from seekserve.client.request import ServerInfo
from seekserve.errors import InputError

__all__ = ["Calls", "channel_options", "is_loopback", "server_info", "target_of"]

_SERVICE = "/inference.GRPCInferenceService/"
_TARGET = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^\s/:\[\]]+):(?P<port>\d{1,5})")


def target_of(url: str) -> str:
    """The gRPC target of `host:port` or `grpc://host:port`; InputError says what is wrong with anything else."""
    scheme, mark, rest = url.partition("://")
    if mark and scheme != "grpc":
        raise InputError(
            f"url {url!r}: scheme {scheme!r} is not spoken here; give the gRPC address as host:port",
            hint="Triton's gRPC port is 8001 by default, its HTTP port 8000",
        )
    target = (rest if mark else url).rstrip("/")
    found = _TARGET.fullmatch(target)
    if found is None or not 1 <= int(found["port"]) <= 65535:
        raise InputError(f"url {url!r}: expected host:port with a port from 1 to 65535, for example 127.0.0.1:8001")
    return target


def is_loopback(target: str) -> bool:
    host = target.rpartition(":")[0].strip("[]")
    return host in ("localhost", "::1") or host.startswith("127.")


def channel_options(target: str, connect_timeout_s: float) -> list[tuple[str, int]]:
    return [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        # The bound of one connection attempt; calls fail as soon as it is over instead of waiting for the next.
        ("grpc.min_reconnect_backoff_ms", max(1, int(connect_timeout_s * 1000))),
        # gRPC's own back-off grows to two minutes, long after a restarted server is back.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Otherwise clients of one process share a connection and its back-off.
        ("grpc.use_local_subchannel_pool", 1),
        # A proxy from the environment cannot reach this machine's loopback.
        ("grpc.enable_http_proxy", 0 if is_loopback(target) else 1),
    ]


class Calls:
    """The methods used of Triton's service, bound to a sync or an asyncio channel."""

    def __init__(self, channel: Any) -> None:
        self.infer = channel.unary_stream(
            _SERVICE + "ModelStreamInfer",
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )
        self.server_ready = _unary(channel, "ServerReady")
        self.model_ready = _unary(channel, "ModelReady")
        self.server_metadata = _unary(channel, "ServerMetadata")
        self.repository_index = _unary(channel, "RepositoryIndex")


def _unary(channel: Any, name: str) -> Any:
    return channel.unary_unary(
        _SERVICE + name,
        request_serializer=getattr(service_pb2, f"{name}Request").SerializeToString,
        response_deserializer=getattr(service_pb2, f"{name}Response").FromString,
    )


def server_info(message: Any) -> ServerInfo:
    return ServerInfo(name=message.name, version=message.version, extensions=tuple(message.extensions))
