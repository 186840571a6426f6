"""Commands of the palette: every order and every page by its name.

Owns: their texts. Must not know: how a command is carried out: each is an order, or an action of the app.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from textual.app import SystemCommand

from sparkdash.tui.layout import Arrangement
from sparkdash.tui.mirror import View
from sparkdash.tui.orders import UserOrders
from sparkdash.tui.profile_orders import ProfileOrders
from sparkdash.tui.widgets.header import PAGES

WHAT = {
    "dashboard": "Running engine, speed, memory, requests",
    "profiles": "All profiles with their memory need; switch here",
    "requests": "Running requests, and the recorded past",
    "compare": "A beside B, and every measured run",
    "logs": "An engine's log",
    "box": "Memory of the box by holder, with what frees it",
    "history": "Charts from minutes to months, usage, swaps and notices",
}
"""Contents of each page in one line."""
THEMES = {
    "dark": "Light text on dark",
    "light": "Dark text on light",
    "contrast": "High contrast, on black",
    "safe": "On dark, told apart with every kind of colour vision",
    "safe-light": "The same on light",
    "plain": "The terminal's own colours",
}
"""Themes by their names in `theme.NAMES`."""

ARRANGEMENTS = {
    Arrangement.ALL: "Every panel of the dashboard",
    Arrangement.HERO: "The large figure and its chart over the whole page",
    Arrangement.ROWS: "Engines and requests, with a small figure",
}


class PaletteHost(Protocol):
    """The app, as far as the palette needs it."""

    view: View
    orders: UserOrders
    profile_orders: ProfileOrders

    def action_page(self, page: str) -> None:
        """Open a page."""

    def action_look(self, name: str) -> None:
        """Use another theme."""

    def arrange(self, shown: Arrangement) -> None:
        """Show other panels on the dashboard page."""

    def action_settings(self) -> None:
        """Show every setting."""

    def action_measure(self) -> None:
        """Plan an A/B run of the marked profiles."""

    def action_help(self) -> None:
        """Show every key."""

    def action_save_screen(self) -> None:
        """Save the screen as an SVG."""

    def action_copy_url(self) -> None:
        """Copy the URL that clients use."""

    async def action_quit(self) -> None:
        """Leave the dashboard."""


def palette_commands(app: PaletteHost) -> Iterator[SystemCommand]:
    """Yield the commands that make sense in the current state."""
    for number, (name, title) in enumerate(PAGES.items(), 1):
        yield SystemCommand(f"Page: {title}", f"{WHAT[name]} ({number})", partial(app.action_page, name))
    yield from _of_engines(app)
    yield SystemCommand("Flip A/B", "Switch to whichever of A and B does not run (t)", app.orders.flip)
    yield SystemCommand("Reload profiles", "Read the profile files again (r)", app.orders.reload)
    if app.view.measuring:
        yield SystemCommand(
            "End the measurement", "The measured cells are kept (e on the A/B page)", app.orders.end_measuring
        )
    else:
        yield SystemCommand(
            "Resume a measurement",
            "Resume the newest unfinished run (r on the A/B page: the one under the cursor)",
            app.orders.resume_run,
        )
    yield SystemCommand("Doctor", "What keeps engines from running on this box (D)", app.orders.doctor)
    yield SystemCommand("Memory by owner", "Who holds the box's memory, and how to free it (M)", app.orders.memory)
    yield SystemCommand("Settings", "Every key of config.toml; change one (,)", app.action_settings)
    yield SystemCommand("Measure A/B", "Plan a run of the two marked profiles, then begin it (A)", app.action_measure)
    yield from _of_profiles(app)
    if app.view.snapshot and app.view.snapshot.traffic is not None:
        yield SystemCommand("Demo traffic on or off", "The demo's own requests (ctrl+t)", app.orders.traffic)
    for name, about in THEMES.items():
        yield SystemCommand(f"Theme: {name}", f"{about} (T: the next one)", partial(app.action_look, name))
    for shown, told in ARRANGEMENTS.items():
        yield SystemCommand(f"Layout: {shown.value}", f"{told} (v: the next one)", partial(app.arrange, shown))
    yield SystemCommand("Copy the clients' URL", "The base URL for clients", app.action_copy_url)
    yield SystemCommand("Screenshot", "Save the screen as an SVG (ctrl+s)", app.action_save_screen)
    yield SystemCommand("Help", "Every key and the meaning of the figures (?)", app.action_help)
    yield SystemCommand("Quit", "Quit; the daemon keeps serving (q)", app.action_quit)


def _of_engines(app: PaletteHost) -> Iterator[SystemCommand]:
    if app.view.swap:
        yield SystemCommand("Cancel the swap", "Cancel every swap under way (x)", app.orders.cancel)
    if app.view.swap and app.view.swap.still_since is not None:
        yield SystemCommand("Extend the stalled load", "Its limit begins anew (K)", app.orders.extend_load)
    for name in app.view.snapshot.engines if app.view.snapshot else ():
        yield SystemCommand(f"Stop {name}", "Asks first (S)", partial(app.orders.stop, name))


def _of_profiles(app: PaletteHost) -> Iterator[SystemCommand]:
    verbs: tuple[tuple[str, str, Callable[[str], None]], ...] = (
        ("Switch to {}", "Asks first if that stops something", app.orders.switch),
        ("Mark {} as A", "The A of the A/B pair", partial(app.orders.mark, side="A")),
        ("Mark {} as B", "The B of the A/B pair", partial(app.orders.mark, side="B")),
        ("Pull {}", "Fetch image and weights without starting anything (p)", app.profile_orders.pull),
        ("Pin or unpin {}", "A pinned engine stays until a person stops it (P)", app.profile_orders.pin),
        ("Preload {} or not", "Load it when the daemon starts (L)", app.profile_orders.preload),
        ("Edit {}", "Its file, in your editor; checked before it is kept (E)", app.profile_orders.edit),
        ("Dry run of {}", "The command that would start its engine (D)", app.profile_orders.dry_run),
    )
    for profile in app.view.snapshot.profiles if app.view.snapshot else ():
        for title, about, action in verbs:
            yield SystemCommand(
                title.format(profile.name), about, partial(action, profile.name), discover=title is verbs[0][0]
            )
