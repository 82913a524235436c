"""How workers form a view, and how a joining worker gets the state."""
