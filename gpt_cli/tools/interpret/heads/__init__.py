"""What heads do, what each is worth, and what it writes."""
