"""The fleet store on SQL."""
