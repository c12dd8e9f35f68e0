"""Files and streams to pages of text. The parser runs in a limited child process; see `extract`."""

from ondevice.documents.extract import extract, read, watched
from ondevice.documents.formats.plain import read_stream
from ondevice.documents.types import Document, Page
from ondevice.documents.worker.limits import Limits

__all__ = ["Document", "Limits", "Page", "extract", "read", "read_stream", "watched"]
