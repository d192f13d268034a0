"""The ports: what components need from the outside world, one module for each promise.

A driver is verified by the contract suite of its port (`tests/contract/`); `sentinel.testing` and the memory
broker pass the same suites. `errors` has what every driver may raise.
"""
