"""Where keepstep meets other people's frameworks: one module each, which imports its framework only when it is itself imported."""
