"""Every failure that a user can cause or mend, as a named exception.

Each one says what happened, where, and what to do about it. A setting stands in these texts by its path in braces, as
in `{pot.capacity}`: each face puts in what its users call it, and everywhere else it is read as in Python. Our own
mistakes are not here: they stay assertions.
"""

import re
from collections.abc import Callable

_SETTING = re.compile(r"\{([a-z_]+\.[a-z_]+)\}")
_INNER = re.compile(r" \[\w*(?:[Ee]rror|Exception|File)\]")


def named(text: str, name: Callable[[str], str]) -> str:
    """The text with every `{path}` of a setting replaced by the `name` of that path."""
    return _SETTING.sub(lambda match: name(match[1]), text)


def without_inner_names(text: str) -> str:
    """Without the names of exceptions, by which we find a fault, as in "is damaged [PdfStreamError]"."""
    return _INNER.sub("", text)


class OndeviceError(Exception):
    """A failure with a sentence for the user.

    Args:
        what: what happened, one sentence without a full stop.
        where: the file, page, option or model concerned, if there is one.
        fix: what the user can do about it.
    """

    code = "error"

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self._what, self._fix = what, fix
        self.what, self.where, self.fix = named(what, str), where, named(fix, str)
        super().__init__(self.what)

    def __str__(self) -> str:
        return self.text()

    @property
    def setting(self) -> str:
        """Path of the first setting that it names; "" where it names none."""
        found = _SETTING.search(f"{self._what} {self._fix}")
        return found[1] if found else ""

    def text(self, name: Callable[[str], str] = str) -> str:
        """All of it in one or two sentences; `name` says what settings are called, by their path."""
        error = self.to_dict(name)
        text = f"{error['what']} ({error['where']})." if error["where"] else f"{error['what']}."
        return f"{text} {error['fix']}" if error["fix"] else text

    def to_dict(self, name: Callable[[str], str] = str) -> dict[str, str]:
        """Its parts; `name` as in `text`."""
        what, fix = named(self._what, name), named(self._fix, name)
        return {"code": self.code, "what": what, "where": self.where, "fix": fix}


class ConfigError(OndeviceError):
    """An option has a value that cannot work."""

    code = "config"


class DocumentError(OndeviceError):
    """A document cannot be read."""

    code = "document"


class UnsupportedDocument(DocumentError):
    """The file is of a kind that no reader understands, or not what its name says."""

    code = "document-unsupported"


class EmptyDocument(DocumentError):
    """The document holds no text at all (0 bytes, or scanned pages only)."""

    code = "document-empty"


class DocumentTooComplex(DocumentError):
    """The parser reached its limit of time or memory."""

    code = "document-too-complex"


class DocumentTooLarge(DocumentError):
    """The document has more pages than can be handled, or its text does not fit into the free memory."""

    code = "document-too-large"


class PasswordRequired(DocumentError):
    """The document is encrypted and opens only with a password."""

    code = "password-required"


class WrongPassword(DocumentError):
    """The password given does not open the document."""

    code = "password-wrong"


class ModelError(OndeviceError):
    """A model cannot be loaded or used."""

    code = "model"


class UnsafeModel(ModelError):
    """A checkpoint could run code when loaded (pickle weights, remote code)."""

    code = "model-unsafe"


class ModelDownloadError(ModelError):
    """The default model is not on this machine yet and cannot be fetched."""

    code = "model-download"


class PotError(OndeviceError):
    """The pot cannot do what was asked: no document read, a question too long for the reserve."""

    code = "pot"


class DamagedPot(PotError):
    """A saved pot holds what this program never writes: it was damaged, or made by something else.

    Args:
        why: what is wrong with it.
    """

    def __init__(self, why: str, *, where: str = "") -> None:
        super().__init__(f"The saved pot is damaged: {why}", where=where, fix="Read the document again.")


class NotResumable(PotError):
    """A reading that cannot be kept in its middle: it would not end in the same pot."""


class PotMismatch(PotError):
    """A saved pot belongs to another model, tokenizer or method."""

    code = "pot-mismatch"


class OutOfMemory(OndeviceError):
    """The request took more memory than there was; earlier reading and answers are untouched."""

    code = "memory"


class LibraryError(OndeviceError):
    """A saved document cannot be kept, found, renamed or deleted."""

    code = "library"


class NotInLibrary(LibraryError):
    """There is no saved document of that id."""

    code = "not-found"
