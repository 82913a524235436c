"""Trainers of other libraries that train elastically. Each module needs the library after which it is named."""
