"""`ondevice app`: the same in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from ondevice.cli.options import AnswerOptions, PotOptions
from ondevice.cli.terminal import ended_at_once, errors_shown
from ondevice.errors import ConfigError
from ondevice.extras import AGAIN
from ondevice.serving.address import check_address, url_of
from ondevice.serving.first_page import FirstPage

PORT = 7860


def app(
    options: PotOptions,
    answers: AnswerOptions,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = PORT,
    listen: Annotated[bool, typer.Option("--listen", help="Agree to be reachable from other machines.")] = False,
    auth: Annotated[
        str,
        typer.Option(
            # Other users can read the arguments of a command, not the environment of its process.
            help="What the browser must give; better in the environment variable.",
            metavar="USER:PASSWORD",
            envvar="ONDEVICE_AUTH",
            show_envvar=True,
        ),
    ] = "",
    allowed_hosts: Annotated[str, typer.Option(help="Further names of this server, with commas between them.")] = "",
    inbrowser: Annotated[bool, typer.Option("--inbrowser", help="Open the page in your browser.")] = False,
    api: Annotated[
        bool, typer.Option("--api/--no-api", help="Let programs on this machine use it: docs/api.md.")
    ] = True,
    read: Annotated[
        bool, typer.Option("--read/--no-read", help="Read documents as soon as they are open, or when asked to.")
    ] = True,
    keeps_open: Annotated[
        bool,
        typer.Option(
            "--keep-open/--no-keep-open",
            help="Keep open documents on disk until they are closed, for the next start, or nothing.",
        ),
    ] = True,
) -> None:
    """Start the app in the browser."""
    with errors_shown(as_json=False), ended_at_once():
        user, colon, password = auth.partition(":")
        if auth and not (user and colon and password):
            raise ConfigError("--auth needs a user name and a password", fix="Give them as USER:PASSWORD.")
        config = options.config(answers.config())
        login = (user, password) if auth else None
        check_address(host, listen=listen, auth=login)
        with FirstPage(host, port) as first:
            typer.echo(f"Starting at {url_of(host.strip('[]'), first.port)}", err=True)  # our imports take seconds
            try:
                from ondevice.ui.launch import launch
            except ModuleNotFoundError as error:
                raise ConfigError(f"The app needs {error.name}, which is not installed", fix=AGAIN) from None
            launch(
                config,
                host=host,
                port=first.port,
                listen=listen,
                auth=login,
                allowed_hosts=tuple(name.strip() for name in allowed_hosts.split(",") if name.strip()),
                inbrowser=inbrowser,
                api=api,
                reads_at_once=read,
                keeps=keeps_open,
                handover=first.close,
            )
