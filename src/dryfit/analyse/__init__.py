"""Who owns the bytes of a recording, when, and from which line."""
