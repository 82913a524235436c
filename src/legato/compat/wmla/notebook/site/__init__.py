"""What stands on ``sys.path`` of a notebook: modules of the names that notebooks import."""
