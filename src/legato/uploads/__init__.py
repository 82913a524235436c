"""Receives, reads and unpacks files that users send. Trusts nothing in them."""
