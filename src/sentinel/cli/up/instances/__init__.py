"""Proxy instances of `sentinel up`: agents and proxies as child processes, as on the hosts of a fleet."""
