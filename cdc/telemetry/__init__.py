"""What the program tells machines of itself: events and numbers."""
