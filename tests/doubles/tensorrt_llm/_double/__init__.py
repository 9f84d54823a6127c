"""What belongs to the double and has no counterpart in the real package. No test of a client may import from here."""
