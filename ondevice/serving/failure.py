"""Failures in a sentence for the user."""

from __future__ import annotations

import logging
import secrets

from ondevice.config import on_screen
from ondevice.errors import OndeviceError, PasswordRequired, WrongPassword
from ondevice.machine.memory import ran_out

NO_MEMORY = "There was not enough memory for this. Choose a smaller pot and read again."
_PASSWORD_NEEDED = "This file is locked. Type its password to open it."
_PASSWORD_WRONG = "This password does not open the file. Check it and try again; the file itself is fine."

log = logging.getLogger(__name__)


def problem_text(error: Exception, activity: str) -> str:
    """The sentence. A failure of our own goes to the log with a reference, never with a text of the user."""
    match error:
        case WrongPassword():
            return _PASSWORD_WRONG
        case PasswordRequired():
            return _PASSWORD_NEEDED
        case OndeviceError():
            return on_screen(error)
        case _ if ran_out(error):
            return NO_MEMORY
    reference = secrets.token_hex(4)
    log.error("%s failed [%s]: %s", activity, reference, type(error).__name__)
    log.debug("details [%s]", reference, exc_info=error)
    return f"Something went wrong inside the program (reference {reference})."
