"""What Sentinel decides, as pure functions: no clock, no log, no random, no I/O."""
