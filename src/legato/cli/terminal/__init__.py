"""What the command line prints: lines, tables and live displays. Asks no server."""
