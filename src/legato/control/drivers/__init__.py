"""The interface between the control loop and the drivers of jobs."""
