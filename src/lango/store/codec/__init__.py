"""Convert values to rows and back."""
