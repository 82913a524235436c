"""What runs in the user's process. The floor where torch lives; never loads the platform."""
