"""`python -m sentinel.cli`: the command, where the script is not on the path."""

from sentinel.cli.main import main

main()
