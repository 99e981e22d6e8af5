"""What several commands share; each module beside this folder is a command."""
