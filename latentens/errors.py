"""The errors a user can cause; each message is one sentence that names the fault and the remedy."""


class LatentensError(ValueError):
    """Input that cannot be used as it is."""


class VotesError(LatentensError):
    """Votes that are malformed or do not fit the model."""


class ContractError(LatentensError):
    """A generative program that breaks the program contract; the message names the site."""


class ParameterError(LatentensError):
    """Parameter values that do not fit the program."""


class LatentensWarning(UserWarning):
    """Input that can be used, but not all of it."""


class DataNotFoundError(LatentensError, FileNotFoundError):
    """A data file that is not where it was looked for; the message says what to fetch and where to put it."""


class LimitError(LatentensError):
    """A step that would take more memory or time than allowed; the message names the estimate and the remedy."""


class SettingError(LatentensError):
    """A setting of a method, a model or a training that it cannot have; the message names it."""
