"""Which part of a model carries an answer: activations of a clean prompt in the run of a corrupt one."""
