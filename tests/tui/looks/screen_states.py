"""Every state of which the screens are agreed on, by its name."""

import states_pages
import states_serving
import states_trouble
from screen_shots import State

STATES: dict[str, State] = {**states_serving.STATES, **states_trouble.STATES, **states_pages.STATES}
