"""Start the app from a checkout: flags, settings, launch. `ondevice app` does the same for an installed package."""

from __future__ import annotations

import argparse
import sys

from ondevice.config import DEFAULT_MODEL, EngineConfig
from ondevice.errors import OndeviceError
from ondevice.ui.launch import launch


def main() -> int:
    parser = argparse.ArgumentParser(description="Read documents of any length in a fixed amount of memory.")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="smollm2, a folder, a .gguf file or a hub id")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--quantization", default="none", choices=("none", "8bit", "4bit"))
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=7860)
    parser.add_argument("--listen", action="store_true", help="agree to be reachable from other machines")
    parser.add_argument("--auth", metavar="USER:PASSWORD", help="what the browser must give; needed with --listen")
    parser.add_argument("--inbrowser", action="store_true", help="open the page in the default browser")
    parser.add_argument("--no-api", action="store_true", help="serve no programming interface")
    flags = parser.parse_args()
    try:
        user, _, password = (flags.auth or "").partition(":")
        launch(
            EngineConfig(model=flags.model, device=flags.device, quantization=flags.quantization),
            host=flags.host,
            port=flags.port,
            listen=flags.listen,
            auth=(user, password) if flags.auth else None,
            inbrowser=flags.inbrowser,
            api=not flags.no_api,
        )
    except OndeviceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
