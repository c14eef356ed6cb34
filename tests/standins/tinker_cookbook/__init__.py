"""Stand-in of tinker-cookbook: what its rollouts are made of, without a model and without torch."""
