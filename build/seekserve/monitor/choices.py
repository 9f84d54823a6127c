"""The `monitoring` section of seekserve.yaml: who is scraped, what is promised, who is told.

Secrets are never written into a rendered file: only paths of files that hold them.

    monitoring:
      targets: ["10.0.0.5:8002"]           # Triton's metrics ports; default: server.host and server.metrics_port
      gateways: ["10.0.0.5:8080"]
      dcgm: ["10.0.0.5:9400"]              # NVIDIA's DCGM exporter
      alertmanagers: ["127.0.0.1:9093"]
      scrape_interval_s: 10
      objective: 0.99                      # of the requests that are no mistake of the client's
      email: {to: ops@example.org, from: seekserve@example.org, smarthost: "mail.example.org:587",
              username: seekserve, password_file: /etc/alertmanager/smtp_password}
      webhook: {url: "https://hooks.example.org/seekserve", token_file: /etc/alertmanager/webhook_token}
      sms: {url: "https://sms.example.org/send", token_file: /etc/alertmanager/sms_token}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from seekserve.errors import ConfigError
from seekserve.output import problems_text
from seekserve_backend.contract.fields import ContractError, Fields

__all__ = ["Email", "Hook", "MonitoringChoices", "read_choices"]

_ADDRESS = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_MAIL = re.compile(r"[^@\s,<>\"]+@[^@\s,<>\"]+")
_LEAST_OBJECTIVE, _MOST_OBJECTIVE = 0.95, 0.99999
"""Below, the fastest burn that is alarmed at (14.4 times the budget) would be more than everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Email:
    to: str
    sender: str
    smarthost: str
    username: str | None = None
    password_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    url: str
    token_file: str | None = None
    """Its content is sent as a bearer token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringChoices:
    targets: tuple[str, ...]
    gateways: tuple[str, ...] = ()
    dcgm: tuple[str, ...] = ()
    alertmanagers: tuple[str, ...] = ("127.0.0.1:9093",)
    scrape_interval_s: int = 10
    """At most 15: the rates over one minute need four scrapes."""
    objective: float = 0.99
    email: Email | None = None
    webhook: Hook | None = None
    sms: Hook | None = None


def read_choices(data: Mapping[str, Any], *, default_target: str, where: str) -> MonitoringChoices:
    """Raises ConfigError with every fault."""
    fields = Fields(data, where)
    base = MonitoringChoices(targets=(default_target,))
    choices = MonitoringChoices(
        targets=_addresses(fields, "targets", base.targets, least=1),
        gateways=_addresses(fields, "gateways", ()),
        dcgm=_addresses(fields, "dcgm", ()),
        alertmanagers=_addresses(fields, "alertmanagers", base.alertmanagers),
        scrape_interval_s=fields.integer("scrape_interval_s", base.scrape_interval_s, low=1, high=15),
        objective=fields.number("objective", base.objective, low=_LEAST_OBJECTIVE, high=_MOST_OBJECTIVE),
        email=_email(fields),
        webhook=_hook(fields, "webhook"),
        sms=_hook(fields, "sms"),
    )
    try:
        fields.done()
    except ContractError as error:
        raise ConfigError(problems_text(where, error.problems)) from error
    return choices


def _addresses(fields: Fields, key: str, default: tuple[str, ...], *, least: int = 0) -> tuple[str, ...]:
    if not fields.has(key):
        return default
    value = fields.raw(key)
    if not isinstance(value, list) or len(value) < least:
        fields.problem(f"{key}: expected a list of HOST:PORT, got {value!r}")
        return default
    for each in value:
        match = _ADDRESS.fullmatch(each) if isinstance(each, str) else None
        if match is None or not 0 < int(match[1]) < 65536:
            fields.problem(f"{key}: expected HOST:PORT, got {each!r}")
    return tuple(dict.fromkeys(map(str, value)))


def _email(fields: Fields) -> Email | None:
    if not fields.has("email"):
        return None
    part = fields.child("email")
    email = Email(
        to=part.string("to"),
        sender=part.string("from"),
        smarthost=part.string("smarthost"),
        username=part.opt_string("username"),
        password_file=_secret_file(part, "password_file"),
    )
    for key, value in (("to", email.to), ("from", email.sender)):
        if value and not _MAIL.fullmatch(value):
            part.problem(f"{key}: expected one mail address, got {value!r}")
    if email.smarthost and not _ADDRESS.fullmatch(email.smarthost):
        part.problem(f"smarthost: expected HOST:PORT, got {email.smarthost!r}")
    if (email.username is None) != (email.password_file is None):
        part.problem("username and password_file belong together: give both or neither")
    part.done()
    return email


def _hook(fields: Fields, key: str) -> Hook | None:
    if not fields.has(key):
        return None
    part = fields.child(key)
    hook = Hook(url=part.string("url"), token_file=_secret_file(part, "token_file"))
    try:
        url = urlsplit(hook.url)
        is_plain = bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        url, is_plain = urlsplit(""), False
    if not is_plain or url.scheme not in ("http", "https") or any(c.isspace() for c in hook.url):
        part.problem("url: expected http:// or https:// with a host")
    elif url.username is not None or url.password is not None or url.query:
        # Not echoed: whatever stands there may be a secret.
        part.problem("url: holds a user, a password or a query; put the secret into token_file")
    part.done()
    return hook


def _secret_file(fields: Fields, key: str) -> str | None:
    value = fields.opt_string(key)
    if value is not None and (not PurePosixPath(value).is_absolute() or any(ord(c) < 32 for c in value)):
        fields.problem(f"{key}: expected the absolute path of a file on Alertmanager's machine, got {value!r}")
    return value
