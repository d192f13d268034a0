"""`sentinel hub`: the configuration of proxies."""
