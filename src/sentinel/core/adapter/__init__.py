"""Rules of adapters: which resource an event is about, and what a task's outcome reports."""
