"""The directory on ``sys.path`` of a notebook: modules with the names that notebooks import."""
