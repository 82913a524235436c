"""What stands on ``sys.path`` of a job: modules of the names that programs import, and the launcher."""
