import matplotlib.pyplot as plt
import numpy as np

from latentens.checks import SimulationRanks
from latentens.reporting import rank_figure


def test_every_parameter_has_its_panel_and_verdict():
    uniforms = np.random.default_rng(0).uniform(size=(60, 3))
    names = ("prevalence", "sensitivity[0]", "sensitivity[1]")
    ranks = SimulationRanks(names, np.floor(10 * uniforms).astype(int), 9, uniforms, np.ones(3))
    figure = rank_figure(ranks)
    shown = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in shown] == list(names)
    for axes, column in zip(shown, uniforms.T, strict=True):
        assert axes.collections or axes.texts, "a band or a p-value"
        curve = max((np.asarray(line.get_ydata(), float) for line in axes.lines), key=np.ptp)
        deviation = np.max(np.abs((np.argsort(np.argsort(column)) + 0.5) / 60 - column))
        assert abs(np.max(np.abs(curve)) - deviation) < 2 / 60
    plt.close(figure)
