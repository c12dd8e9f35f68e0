"""Records of workspaces in the library, beside the pots: the conversations, and the numbers of the reading.

It comes back from a file, so that everything is checked before it gets onto the screen.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ondevice.schema import SchemaError, parse
from ondevice.serving.conversations import Conversation
from ondevice.serving.workspace import Workspace
from ondevice.session.engine import Session
from ondevice.telemetry.retention_history import history_of
from ondevice.telemetry.telemetry import STAGES


def record_of(workspace: Workspace) -> dict[str, Any]:
    """Everything of a workspace that is neither in the pot nor in the document, as JSON."""
    telemetry = workspace.telemetry
    return {
        "conversations": [one.to_dict() for one in workspace.conversations if one.exchanges],
        "current": workspace.conversation.id,
        "stage_seconds": telemetry.stage_seconds,
        "fill": workspace.fill,
        "replay": {} if workspace.view is None else workspace.view.replay(),
    }


def restore_workspace(workspace: Workspace, session: Session, record: dict[str, Any]) -> None:
    """Let a workspace go on where it was saved."""
    tokens = session.context.tokens
    # Where the document is open already it is the same one: its pages can still be shown, and its scan holds.
    (file, workspace.page_file), scan = (workspace.page_file, None), workspace.scan
    workspace.accept(tokens)
    workspace.page_file, workspace.scan, workspace.session = file, scan, session
    restore_conversations(workspace, record)
    fill = record.get("fill")
    for point in fill if isinstance(fill, list) else ():
        with suppress(SchemaError):
            workspace.fill.append(parse(tuple[int, int], point))
    telemetry = workspace.telemetry
    telemetry.num_read, telemetry.num_total = session.context.num_read, tokens.num_tokens
    telemetry.num_skipped, telemetry.num_cycles = session.context.num_skipped, session.context.num_cycles
    telemetry.num_cached = session.context.pot.by_layer(session.context.pot.num_cached)
    seconds = record.get("stage_seconds")
    for stage in STAGES:
        value = seconds.get(stage) if isinstance(seconds, dict) else None
        if isinstance(value, int | float) and 0 <= value < 1e9:
            telemetry.stage_seconds[stage] = float(value)
    if workspace.view is not None:
        workspace.view.history = history_of(record.get("replay"), tokens.num_tokens, session.context.num_cycles)
    workspace.note_rest()


def restore_conversations(workspace: Workspace, record: dict[str, Any]) -> None:
    """Take up conversations beside those of the workspace; an older file has the exchanges of a single one."""
    saved = record.get("conversations")
    if not isinstance(saved, list) or not saved:
        saved = [Conversation().to_dict() | {"exchanges": record.get("exchanges")}]
    known = {one.id for one in workspace.listed}
    found = [one for one in map(Conversation.of, saved) if one is not None and one.exchanges and one.id not in known]
    workspace.conversations += found
    if found and not (workspace.exchanges or workspace.asked.is_busy):  # else a question is on its way to its answer
        workspace.conversation = next((one for one in found if one.id == record.get("current")), found[0])
