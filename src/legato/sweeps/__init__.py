"""The search of a sweep: checks its plan, chooses parameters, and decides which trials stop early. Starts nothing."""
