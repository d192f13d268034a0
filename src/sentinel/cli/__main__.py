"""`python -m sentinel.cli`, if the script is not on the path."""

from sentinel.cli.main import main

main()
