"""The directory on ``sys.path`` of a job: modules with the names that programs import, and the launcher."""
