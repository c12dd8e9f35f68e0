"""Read a document of any length in a fixed amount of memory, see what is kept, and ask about it."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ondevice")
except PackageNotFoundError:  # an unpacked checkout that was never installed
    __version__ = "0+unknown"
