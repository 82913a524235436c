"""The output of the command line: lines, tables and live displays. Asks no server."""
