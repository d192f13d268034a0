"""The decisions of Sentinel as pure functions: no clock, no log, no randomness, no I/O."""
