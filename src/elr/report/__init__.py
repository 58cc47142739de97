"""What a run leaves behind, and how it is read: files and numbers, never torch."""
