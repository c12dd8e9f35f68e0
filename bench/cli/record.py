"""`ondevice record`: the recording that the empty page plays, made while a document is really read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ondevice import words
from ondevice.cli.opening import open_document
from ondevice.cli.options import PotOptions
from ondevice.cli.progress import ProgressDisplay, load_engine
from ondevice.cli.terminal import err, errors_shown, say
from ondevice_bench.cli.running import command_line


def record(
    document: Annotated[str, typer.Argument(metavar="DOC", help="A long text; it does not get into the recording.")],
    options: PotOptions,
    out_file: Annotated[Path, typer.Option("--out", help="Write the recording here.")],
    title: Annotated[str, typer.Option(help="What the page calls the document; default: its file name.")] = "",
) -> None:
    """Read a document and record what the memory map showed meanwhile, for the app's empty page."""
    with errors_shown(as_json=False), ProgressDisplay(err()) as display:
        from ondevice.files import READABLE, replacing
        from ondevice_bench.recording import Recorder
        from ondevice_bench.results.result import new_result

        opened = open_document(document, False, display)
        engine = load_engine(options.config(), display)
        stamp, session, recorder = new_result("", engine.config, engine.loaded.device), engine.session(), None
        for event in session.read(opened):
            display.apply(event)
            if session.context.is_open:
                recorder = recorder or Recorder(session)
                recorder.apply(event)
        display.clear()
        assert recorder is not None, "a document without tokens is refused"
        made = recorder.to_dict(title or opened.name) | {
            "date": stamp.date[:10],
            "device": stamp.machine["device"],
            "command": command_line(sys.argv[1:]),
            "commit": stamp.commit,
        }
        with replacing(out_file, mode=READABLE) as part:
            part.write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        say(f"Recorded {words.plural(len(recorder.frames), 'moment')} in {words.size(out_file.stat().st_size)}.")
