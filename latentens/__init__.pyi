# The public names, listed once: for type checkers, and for `__init__.py`, which imports them on first use.
from . import checks as checks
from . import comparison as comparison
from . import datasets as datasets
from . import methods as methods
from . import models as models
from . import rbm as rbm
from . import recommendation as recommendation
from . import reporting as reporting
from . import scores as scores
from .checks import check_fit as check_fit
from .checks import check_independence as check_independence
from .checks import check_signal as check_signal
from .checks import effective_voters as effective_voters
from .comparison import compare as compare
from .comparison import load as load
from .comparison import save as save
from .datasets import Dataset as Dataset
from .datasets import simulate as simulate
from .datasets import simulate_like as simulate_like
from .inference.density import log_density as log_density
from .methods.base import Estimate as Estimate
from .methods.base import Fit as Fit
from .methods.base import Method as Method
from .methods.persistence import load_fit as load_fit
from .methods.sampled import SampledMethod as SampledMethod
from .methods.sampled import fit_from_draws as fit_from_draws
from .programs import GenerativeModel as GenerativeModel
from .programs import QuadratureNormal as QuadratureNormal
from .programs import bayes_posterior as bayes_posterior
from .programs import log_likelihood as log_likelihood
from .programs import pointwise_log_likelihood as pointwise_log_likelihood
from .programs import two_class_confusion as two_class_confusion
from .recommendation import recommend as recommend
from .reporting import report as report
from .votes import Votes as Votes

__version__: str
