"""HTTP/1.0 and 1.1 by a strict grammar: heads as the bytes that came, bodies, and how both are written again."""
