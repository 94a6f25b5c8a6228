import matplotlib
import numpy as np

from gpt_cli.inspecting.colours import colour_of


def test_the_colours_are_those_of_the_pictures() -> None:
    viridis = matplotlib.colormaps["viridis"]
    for weight in np.linspace(0, 1, 1001):
        np.testing.assert_allclose(colour_of(weight), 255 * np.array(viridis(np.sqrt(weight))[:3]), atol=6)


def test_more_weight_is_lighter_in_grey_too() -> None:
    greys = [np.dot((0.2126, 0.7152, 0.0722), colour_of(weight)) for weight in np.linspace(0, 1, 101) ** 2]
    assert (np.diff(greys) > 0).all()
