"""What users of WMLA fetch from the server and run on their own machines."""
