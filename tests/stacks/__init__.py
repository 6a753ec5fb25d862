"""The training stacks that the README promises to run unmodified, with their figures."""
