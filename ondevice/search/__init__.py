"""Search of a document's text for what a question asks: passages, word scores, their best within a budget."""
