"""Stand-in: rollouts, groups, strategies."""
