"""One process or many: who they are, what they agree on, and sums that do not depend on their number."""
