"""The control loop: observe, decide, apply. One server of a platform runs it at a time."""
