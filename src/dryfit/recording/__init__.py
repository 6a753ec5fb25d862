"""The shared record between a rehearsal, or a real card's snapshot, and everything that reads it."""
