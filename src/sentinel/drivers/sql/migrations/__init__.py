"""One module for each revision, never changed once it is released."""
