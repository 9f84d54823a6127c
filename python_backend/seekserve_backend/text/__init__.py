"""Pure text stages: tokens -> bytes -> text, stop strings. One stage per file, no I/O, standard library only."""
