"""Questions for yes or no, which a statement answers.

A small model copies the sentence that decides such a question, and says "Yes, pets are not allowed" before it: what it
copies is right more often than its yes. The answer may not open with either, then, unless few words are asked for.
"""

from __future__ import annotations

import re

from ondevice.model.tokenizer import Tokenizer

_VERBS = (
    "is|are|was|were|am|do|does|did|has|have|had|can|could|may|might|must|shall|should|will|would"
    "|ist|sind|war|waren|hat|haben|kann|können|darf|dürfen|muss|müssen|soll|sollen|wird|werden|gibt"
    "|est-ce|peut-on|puis-je|es|son|está|están|hay|puede|pueden|puedo"
)
_YES_OR_NO = re.compile(rf"(?:^|[.!?:\n])\s*(?:and|but|so|und|et|y)?[\s¿]*(?:{_VERBS})\b[^.!?]*\?\s*$", re.IGNORECASE)
_SHORTLY = re.compile(
    r"\b(?:yes or no|yes/no|ja oder nein|oui ou non|sí o no|(?:few|one|single|two|three) words?|briefly|kurz)\b",
    re.IGNORECASE,
)
_WORDS = ("Yes", "No", "yes", "no", "Ja", "Nein", "Oui", "Non", "Sí", "Si")


def barred(question: str, tokenizer: Tokenizer) -> list[int]:
    """Tokens that the answer must not open with; none unless the question asks for yes or no, and in more words."""
    if not _YES_OR_NO.search(question) or _SHORTLY.search(question):
        return []
    openings = (tokenizer.encode(blank + word)[0] for word in _WORDS for blank in ("", " "))
    return [int(ids[0]) for ids in openings if ids.size == 1]
