"""Rules of adapters: which resource an event is about, and which report a task's outcome becomes."""
