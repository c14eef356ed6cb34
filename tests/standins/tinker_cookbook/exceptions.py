"""Stand-in: what the strategies raise."""


class AllTrajectoriesFailedError(Exception):
    pass
