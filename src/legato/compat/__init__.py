"""Translations for programs, commands and requests of other systems; no other package knows them."""
