"""What both halves must agree on: bundle, policy, refusal line, tensor names, step model. Standard library only."""
