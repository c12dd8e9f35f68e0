"""The address that the app listens on: who can reach it, and whether its port is free. It imports next to nothing."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

from ondevice.errors import ConfigError

Auth = tuple[str, str]
_SHORTEST_PASSWORD = 8  # where other machines reach the app


def is_loopback(host: str) -> bool:
    """True if an address to listen on is reachable from this machine only."""
    address = ip_of(host.strip("[]"))
    return host == "localhost" or (address is not None and address.is_loopback)


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address of a host that is given by one; None for a name."""
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


def check_address(host: str, *, listen: bool, auth: Auth | None) -> None:
    """Refuse to be reachable from other machines by accident, or without a password."""
    if is_loopback(host):
        return
    if not listen:
        what = f"--host {host} can be reached from other machines"
        raise ConfigError(what, fix="Add --listen if you want that, or leave it out.")
    if auth is None or not all(auth):
        fix = "Give a user name and a password with --auth."
        raise ConfigError("The app would be open to everyone on the network", fix=fix)
    if len(auth[1]) < _SHORTEST_PASSWORD:
        what = f"The password has {len(auth[1])} characters, and others on the network may try 100 a minute"
        raise ConfigError(what, fix=f"Give one of at least {_SHORTEST_PASSWORD} characters with --auth.")


def free_port(host: str, port: int = 0) -> int:
    """The port itself, or a free one in place of 0; raises ConfigError where it cannot be used."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            what = f"--port {port} cannot be used on {host}: {error.strerror}"
            raise ConfigError(what, fix="Choose another with --port.") from None
        return int(probe.getsockname()[1])


def url_of(host: str, port: int) -> str:
    """The address as a browser takes it."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
