"""Programs under test; each is run by the workers of a job."""
