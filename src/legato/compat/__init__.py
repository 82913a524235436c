"""What lets programs, commands and requests of other systems run here: translations that the rest does not know of."""
