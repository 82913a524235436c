"""The command line: `main` reads commands, `local` runs jobs here, `platform` asks a server, `terminal` prints."""
