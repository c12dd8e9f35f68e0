"""Questions for everything that a document says of a kind: asked on every piece of it."""
