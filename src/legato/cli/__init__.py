"""The command line: `main` reads it; `local` runs jobs here, `platform` asks a server, `terminal` shows."""
