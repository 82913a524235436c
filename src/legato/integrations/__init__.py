"""Other libraries in an elastic job. Each module needs the library after which it is named."""
