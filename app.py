"""Start the app from a checkout: `python app.py` is `ondevice app`, with the same options."""

from __future__ import annotations

import sys

from ondevice.cli import app

if __name__ == "__main__":
    app(["app", *sys.argv[1:]])
