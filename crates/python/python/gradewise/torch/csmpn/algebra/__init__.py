"""The algebra, at its published place."""
