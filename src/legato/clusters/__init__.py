"""Makes agents exist on other machines. Decides nothing about jobs."""
