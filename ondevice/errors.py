"""Every failure that a user can cause or mend, as a named exception.

Each one says what happened, where, and what to do about it; the command line and the
browser show these texts as they are. Our own mistakes are not here: they stay assertions.
"""


class OndeviceError(Exception):
    """A failure with a sentence for the user.

    Args:
        what: what happened, one sentence without a full stop.
        where: the file, page, option or model concerned, if there is one.
        fix: what the user can do about it.
    """

    code = "error"

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what = what
        self.where = where
        self.fix = fix
        super().__init__(what)

    def __str__(self) -> str:
        text = f"{self.what} ({self.where})." if self.where else f"{self.what}."
        return f"{text} {self.fix}" if self.fix else text

    def to_dict(self) -> dict[str, str]:
        return {"code": self.code, "what": self.what, "where": self.where, "fix": self.fix}


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


class PotMismatch(PotError):
    """A saved pot belongs to another model, tokenizer or method."""

    code = "pot-mismatch"


class LibraryError(OndeviceError):
    """A saved document cannot be kept, found, renamed or deleted."""

    code = "library"


class NotInLibrary(LibraryError):
    """There is no saved document of that id."""

    code = "not-found"
