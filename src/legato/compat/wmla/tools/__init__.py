"""Files that users of WMLA download from the server and run on their own machines."""
