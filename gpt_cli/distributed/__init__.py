"""Training in one process or many: ranks, their rendezvous, and sums that do not depend on the number of ranks."""
