"""Stand-in: what the strategies raise."""


class TinkerCookbookError(Exception):
    pass


class TrainingError(TinkerCookbookError):
    pass


class AllTrajectoriesFailedError(TrainingError):
    pass
