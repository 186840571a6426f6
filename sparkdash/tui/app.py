"""The Textual app: folds the feed into the mirror, paints the page, turns keys into orders.

Rule: at most four paints a second, and none when nothing changed.
"""

import asyncio
import os
import signal
import string
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.app import App, SuspendNotSupported, SystemCommand
from textual.binding import ActiveBinding, Binding, BindingType
from textual.command import DiscoveryHit, Hits, Provider
from textual.keys import Keys
from textual.screen import Screen
from textual.system_commands import SystemCommandsProvider

from sparkdash import paths
from sparkdash.client import address
from sparkdash.client.address import Address
from sparkdash.domain.state import Snapshot
from sparkdash.errors import HostError, SparkdashError
from sparkdash.tui import theme
from sparkdash.tui.choices import HeroChoice, KeptChoices
from sparkdash.tui.driver import LoopDriver
from sparkdash.tui.first_run import BoxLook, IdleBox
from sparkdash.tui.layout import COMPACT_BELOW, TWO_COLUMNS_FROM, Arrangement
from sparkdash.tui.local_commands import editor_command
from sparkdash.tui.mirror import Mirror, View
from sparkdash.tui.orders import Orders
from sparkdash.tui.screens.dashboard import DashboardPage
from sparkdash.tui.screens.dialog import Dialog, Palette, TextDialog
from sparkdash.tui.screens.page import Page
from sparkdash.tui.text import LinesForWidth
from sparkdash.tui.widgets.header import PAGES, shown_key
from sparkdash.tui.widgets.panel import EngineAsked, Field, LinesArrived, PageAsked
from sparkdash.units import natural

if TYPE_CHECKING:
    from sparkdash.tui.daemon_client import DaemonClient


LONGER = "OPX"
"""Characters that begin a longer sequence behind Escape; brackets and the like are no keys of these screens."""


def separate_escape() -> None:
    """Let Textual read Escape and a letter or a digit as two keys; words' ends (`ESC b`, `ESC f`) stay one."""
    table = cast("dict[str, Any]", ANSI_SEQUENCES_KEYS)
    for char in string.digits + string.ascii_letters:
        sequence = f"\x1b{char}"
        if char not in LONGER and not isinstance(table.get(sequence), tuple):
            table[sequence] = (Keys.Escape, SimpleNamespace(value=char))


THEMES = {
    "dark": "Light text on dark",
    "light": "Dark text on light",
    "contrast": "High contrast, on black",
    "safe": "On dark, told apart with every kind of colour vision",
    "safe-light": "The same on light",
    "plain": "The terminal's own colours",
}

ARRANGEMENTS = {
    Arrangement.ALL: "Every panel of the dashboard",
    Arrangement.HERO: "The large figure and its chart over the whole page",
    Arrangement.ROWS: "Engines and requests, with a small figure",
}


PAINT_EVERY_S = 0.25
TICK_S, LATE_S = 1.0, 1.25
"""Ages and times are redrawn at this interval while the daemon is silent, and it is once its next sample is late."""
RECALLED_S = 0.3
"""Longest wait of the first frame for the recorded minutes; later ones are drawn when they come."""
RETRY_S = 10.0
"""Delay before another attempt at a daemon of another version, which may have been replaced by then."""


def _later(module: str, name: str) -> Callable[[], Page]:
    """Make a page whose module is loaded when it is first opened, as the dashboard's start is short."""

    def make() -> Page:
        page: Page = getattr(import_module(f"sparkdash.tui.screens.{module}"), name)()
        return page

    return make


class Commands(SystemCommandsProvider):
    """Commands of the palette, in the order in which they are yielded: Textual's own go by the alphabet."""

    async def discover(self) -> Hits:
        for name, help_text, callback, is_shown in self.app.get_system_commands(self.screen):
            if is_shown:
                yield DiscoveryHit(name, callback, help=help_text)


class SparkdashApp(App[None]):
    """Dashboard of one daemon. `clock` gives Unix seconds; `paint_every_s` 0 paints every event (for tests)."""

    CSS_PATH = "sparkdash.tcss"
    TITLE = "sparkdash"
    ALLOW_SELECT = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (80, "-normal"), (TWO_COLUMNS_FROM, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (COMPACT_BELOW, "-short"), (40, "-tall")]
    MODES: ClassVar[dict[str, Callable[[], Page]]] = {  # type: ignore[assignment]  # Textual's own is wider
        "dashboard": DashboardPage,
        "profiles": _later("profiles", "ProfilesPage"),
        "requests": _later("requests", "RequestsPage"),
        "compare": _later("compare", "ComparePage"),
        "logs": _later("page", "LogsPage"),
        "history": _later("history", "HistoryPage"),
        "box": _later("box", "BoxPage"),
    }
    DEFAULT_MODE = "dashboard"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {Commands}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "page('profiles')", "switch to another profile"),
        Binding("x", "end", "end what is under the cursor"),
        Binding("K", "order('extend_load')", "let a stalled load go on"),
        Binding("n", "what_to_do", "what went wrong, and what to do"),
        Binding("f", "next_large", "make the next engine large"),
        Binding("t", "order('flip')", "flip between A and B"),
        Binding("A", "measure", "plan an A/B run of the marked profiles"),
        Binding("D", "order('doctor')", "doctor: what is wrong with this box"),
        Binding("comma", "settings", "settings: every key of config.toml"),
        *(
            Binding(str(digit), f"page('{name}')", f"page: {title}")
            for digit, (name, title) in enumerate(PAGES.items(), 1)
        ),
        Binding("T", "next_look", "next theme"),
        Binding("ctrl+s", "save_screen", "save the screen as an SVG", priority=True),
        Binding("question_mark", "help", "help: every key, and what the figures mean"),
        Binding("colon", "command_palette", "palette", system=True),
        Binding("ctrl+p", "command_palette", "palette", system=True, priority=True),
        Binding("q", "quit", "quit; the daemon keeps serving"),
        Binding("ctrl+c,ctrl+q", "quit", "quit", system=True, priority=True),
        Binding("ctrl+z", "suspend_process", "suspend", system=True, priority=True),
    ]

    def __init__(
        self,
        connect: "Callable[[], DaemonClient]",
        where: Address,
        *,
        clock: Callable[[], float] = time.time,
        paint_every_s: float = PAINT_EVERY_S,
        box: Callable[[], BoxLook] | None = None,
        kept: KeptChoices | None = None,
    ) -> None:
        """Make the app of the daemon at `where`; `connect` makes its client, behind the first frame.

        `box` makes what looks at the box that the daemon runs on; None: that is another one, or simulated. `kept` has
        the choices of earlier starts.
        """
        separate_escape()
        super().__init__(driver_class=LoopDriver, ansi_color=True if os.environ.get("NO_COLOR") else None)
        self.braille = os.environ.get("TERM") != "linux"
        self._connect = connect
        self._open_box = box
        self._kept = kept or KeptChoices()
        self.mirror = Mirror(clock, str(where))
        self.mirror.latest = replace(self.mirror.latest, arrangement=self._kept.arrangement)
        self.view: View = self.mirror.view()
        self.orders = Orders(self)
        self._kept_keys: list[events.Key] = []
        self._last_key = ""
        self.paints = 0
        self._paint_every_s = paint_every_s
        self._painted_at = 0.0
        self._paint_wanted = False
        self._next_tick: asyncio.TimerHandle | None = None
        for look in theme.textual_themes():
            self.register_theme(look)
        self.theme = theme.first_theme(os.environ, self._kept.theme)

    @cached_property
    def daemon(self) -> "DaemonClient":
        return self._connect()

    @cached_property
    def box(self) -> BoxLook | None:
        return self._open_box() if self._open_box else None

    def on_ready(self) -> None:
        """Once the first page is drawn, open the feed, whose modules take a tenth of the start, and start the clock."""
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self.run_worker(self._follow(), group="feed")
        self._tick_in(TICK_S)

    async def _follow(self) -> None:
        """Fold the feed for ever; open it anew after a lost event, which begins with a snapshot."""
        while True:
            try:
                await self._fold()
            except SparkdashError as error:
                self.mirror.refuse(error)
                self.want_paint()
                await asyncio.sleep(RETRY_S)

    async def _fold(self) -> None:
        async for item in self.daemon.feed():
            whole = self.mirror.fold(item)
            if isinstance(item, Snapshot):
                await self._recall()
            self.want_paint()
            self._tick_in(LATE_S)
            if not whole:
                return

    async def _recall(self) -> None:
        """Ask for the last minutes before this dashboard; the first frame waits for the answer, but not long."""
        answered = asyncio.Event()
        self.run_worker(self._recalled(answered), group="past", exclusive=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(answered.wait(), RECALLED_S)

    async def _recalled(self, answered: asyncio.Event) -> None:
        try:
            self.mirror.recall(await self.daemon.recorded_past())
        except SparkdashError:  # an older daemon, or one whose database cannot be read
            return
        finally:
            answered.set()
        self.want_paint()

    def _tick_in(self, seconds: float) -> None:
        if self._next_tick is not None:
            self._next_tick.cancel()
        self._next_tick = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _tick(self) -> None:
        self.want_paint()
        self._tick_in(TICK_S)

    def want_paint(self) -> None:
        if self._paint_wanted:
            return
        self._paint_wanted = True
        wait = self._painted_at + self._paint_every_s - time.monotonic()
        if wait > 0:
            self.set_timer(wait, self._paint)
        else:
            self.call_later(self._paint)

    def _paint(self) -> None:
        self._paint_wanted = False
        self._painted_at = time.monotonic()
        self.paints += 1
        self.view = self.mirror.view()
        with self.batch_update():
            for screen in self.screen_stack:
                if isinstance(screen, Page | TextDialog) and screen.is_mounted:  # one that is being made catches up
                    screen.show(self.view)

    def say(self, text: str, *, bad: bool = False) -> None:
        self.mirror.say(text, bad=bad)
        self.want_paint()

    def set_idle(self, idle: IdleBox) -> None:
        self._change(replace(self.mirror.latest, idle=idle))

    def choose_hero(self, hero: HeroChoice) -> None:
        self._change(replace(self.mirror.latest, hero=hero))

    def _change(self, latest: View) -> None:
        self.mirror.latest = latest
        self.view = self.mirror.view()
        self.want_paint()

    def arrange(self, shown: Arrangement) -> None:
        self._change(replace(self.mirror.latest, arrangement=shown))
        self._kept.keep("arrangement", shown.value)
        self.say(f"Layout: {shown.value}; v takes the next.")

    def open_history(self, figure: str, profile: str) -> None:
        from sparkdash.tui.screens.history import HistoryPage

        self.switch_mode("history")
        if isinstance(self.screen, HistoryPage):
            self.screen.chart_subject(figure, profile)

    async def ask(self, title: str, told: LinesForWidth, *, yes: str | None = None, again: str | None = None) -> bool:
        """Show a dialog; return whether the user agreed. Call from a worker."""
        answer: str | None = await self.push_screen_wait(Dialog(title, told, yes=yes, again=again))
        return bool(answer)

    async def choose(
        self, title: str, told: LinesForWidth, *, yes: str | None, again: str, others: Mapping[str, str]
    ) -> str:
        """Show a dialog; return the key that was chosen, "yes" or "". Call from a worker."""
        dialog = Dialog(title, told, yes=yes, again=again, others=others)
        return await self.push_screen_wait(dialog) or ""

    async def on_event(self, event: events.Event) -> None:
        """Keep keys that come while the daemon is asked for a dialog's words; Escape gives up waiting."""
        if isinstance(event, events.Key) and self.orders.is_thinking and event.key not in ("escape", "ctrl+c"):
            if event.key != self._last_key:  # once more the key that asked is no answer
                self._kept_keys.append(event)
            return
        if isinstance(event, events.Key):
            self._last_key = event.key
        await super().on_event(event)

    def release_keys(self) -> None:
        """Press the keys that waited for a dialog."""
        self.orders.is_thinking, kept = False, self._kept_keys
        self._kept_keys = []
        for event in kept:
            self.post_message(events.Key(event.key, event.character))

    def run_order(self, order: Coroutine[None, None, None]) -> None:
        self.run_worker(order, group="order")

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield the commands that make sense in the current state, the keys of the page first."""
        for told, (one, *_) in named_keys(screen).items():
            action = partial(screen.app.run_action, one.binding.action, one.node)
            yield SystemCommand(told[:1].upper() + told[1:], f"key {shown_key(one.binding.key)}", action)
        for name in self.view.snapshot.engines if self.view.snapshot else ():
            yield SystemCommand(f"Stop {name}", "Asks first", partial(self.orders.stop, name))
        if self.view.measuring:
            yield SystemCommand("End the measurement", "The measured cells are kept", self.orders.end_measuring)
        else:
            yield SystemCommand("Resume a measurement", "Resume the newest unfinished run", self.orders.resume_run)
        yield from _of_profiles(self)
        for name, about in THEMES.items():
            yield SystemCommand(f"Theme: {name}", f"{about} (T: the next one)", partial(self.action_look, name))
        for shown, told in ARRANGEMENTS.items():
            yield SystemCommand(f"Layout: {shown.value}", f"{told} (v: the next one)", partial(self.arrange, shown))
        yield SystemCommand("Copy the clients' URL", "The base URL for clients", self.action_copy_url)

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def refresh_css(self, animate: bool = True) -> None:
        """Parse the styles anew, as for another theme; before the first page they have yet to be parsed at all."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    def clear_selection(self) -> None:
        """Do nothing: no text can be selected, and Textual's own asks too early for a screen (Python 3.12)."""

    def delay_update(self, delay: float = 0.05) -> None:
        """Hold paints until the coming screen has taken over, at most `delay` seconds.

        Textual holds them for the whole 50 ms at each switch of pages, which was most of the time from a key to the
        page.
        """
        held = ExitStack()
        held.enter_context(self.batch_update())

        def draw() -> None:
            latest.stop()
            held.close()
            self.screen.refresh()

        latest = self.set_timer(delay, draw)  # for a screen that ends before it takes over
        self.call_later(lambda: self.screen.call_later(draw))  # each screen takes its messages in their order

    def on_key(self, event: events.Key) -> None:
        """Type a key into the field that has opened since it was pressed: one read may bring "/", letters and Enter."""
        if isinstance(self.focused, Field) and self.focused.takes(event):
            event.prevent_default()
            self.focused.post_message(events.Key(event.key, event.character))
        elif isinstance(self.screen, Palette) and not self.focused and (event.is_printable or event.key == "enter"):
            event.prevent_default()
            self.screen.post_message(events.Key(event.key, event.character))  # which types it once it has its field

    def on_page_asked(self, message: PageAsked) -> None:
        self.action_page(message.page)

    def on_engine_asked(self, message: EngineAsked) -> None:
        self._make_large(message.profile)

    def on_lines_arrived(self, _message: LinesArrived) -> None:
        self.want_paint()

    def action_page(self, page: str) -> None:
        """Show a page, without what was said of the one before; an error stays."""
        said = self.mirror.latest.feedback
        if said is not None and not said.bad:
            self._change(replace(self.mirror.latest, feedback=None))
        self.switch_mode(page)

    def action_next_large(self) -> None:
        names = sorted(self.view.snapshot.engines, key=natural) if self.view.snapshot else []
        if len(names) < 2:
            self.say("One engine at most runs: it is the large one." if names else "No engine runs.")
            return
        now = self.view.engine.profile if self.view.engine else ""
        self._make_large(names[(names.index(now) + 1) % len(names)] if now in names else names[0])

    def _make_large(self, profile: str) -> None:
        self._change(replace(self.mirror.latest, chosen=profile))
        self.say(f"{profile} is large; f takes the next engine.")

    def action_order(self, name: str) -> None:
        getattr(self.orders, name)()

    def action_end(self) -> None:
        if isinstance(self.screen, Page):
            self.screen.end_what_is_here()

    def action_what_to_do(self) -> None:
        from sparkdash.tui.widgets.swaps import trouble_lines

        self.push_screen(Dialog("what went wrong", lambda width: trouble_lines(self.view, width)))

    def action_settings(self) -> None:
        from sparkdash.tui.screens.settings import SettingsPage

        if not isinstance(self.screen, SettingsPage):
            self.push_screen(SettingsPage())

    def action_measure(self) -> None:
        """Plan an A/B run of the marked profiles, and begin it after a look at the plan."""
        from sparkdash.tui.screens.run_start import RunStart

        snapshot = self.view.snapshot
        if snapshot is None or snapshot.toggle_a is None or snapshot.toggle_b is None:
            self.say("Mark two profiles first: page 2, keys a and b.")
            return

        def begun(began: bool | None) -> None:
            if began:
                self.action_page("compare")
                self.say("The run begins; this page shows where it is, x ends it.")

        self.push_screen(RunStart(snapshot.toggle_a, snapshot.toggle_b), begun)

    def edit_file(self, file: Path, line: int) -> None:
        """Hand the terminal to the owner's editor until it ends. Raises HostError."""
        argv = editor_command(file, line)
        try:
            with self.suspend():
                subprocess.run(argv, check=False)
        except SuspendNotSupported as error:
            raise HostError("No editor can run in this terminal.", code="no_editor") from error
        except OSError as error:
            raise HostError(f"{argv[0]} cannot be started: {error.strerror}.", code="no_editor") from error

    def action_suspend_process(self) -> None:
        """Stop this job, as Ctrl-Z does elsewhere; once its shell continues it, the page is drawn whole."""
        with self.suspend():
            textuals = signal.signal(signal.SIGTSTP, signal.SIG_DFL)  # which stops also where no shell would continue
            os.kill(0, signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, textuals)

    def action_help(self) -> None:
        from sparkdash.tui.screens import help as keys_help

        here: list[tuple[str, str]] = []
        everywhere: list[tuple[str, str]] = []
        for word, found in named_keys(self.screen).items():
            shown = (one.binding.key for one in found)
            keys = " ".join(shown_key(key) for key in shown if not key.startswith("shift+"))
            if not word.startswith("page: "):
                (everywhere if found[0].node is self else here).append((keys, word))
        page = self.screen.title_key if isinstance(self.screen, Page) else ""
        told = partial(keys_help.help_lines, tuple(here), tuple(everywhere))
        self.push_screen(Dialog(f"help: {PAGES[page]}" if page in PAGES else "help", told))

    def action_look(self, name: str) -> None:
        self.theme = theme.NAMES[name]
        self._kept.keep("theme", name)

    def action_next_look(self) -> None:
        name = theme.next_name(self.theme)
        self.action_look(name)
        self.say(f"Theme: {name}.")

    def action_save_screen(self) -> None:
        name = time.strftime("sparkdash-%Y%m%d-%H%M%S.svg", time.localtime(self.view.here))
        try:
            path = self.save_screenshot(name, str(Path.cwd()))
        except OSError as error:
            self.say(f"The screenshot cannot be written: {error.strerror} ({Path.cwd()}).", bad=True)
        else:
            self.say(f"Saved {path}.")

    def action_copy_url(self) -> None:
        if self.view.snapshot:
            self.copy_to_clipboard(self.view.snapshot.daemon.url)
            self.say(f"Copied {self.view.snapshot.daemon.url}.")


def named_keys(screen: Screen[Any]) -> dict[str, list[ActiveBinding]]:
    """Return the keys by what they do here, without Textual's own: switch and end, the panel's and the page's, then
    those of all pages.
    """
    found: dict[str, list[ActiveBinding]] = {}
    for one in sorted(screen.active_bindings.values(), key=lambda one: one.binding.key not in "sx"):
        if one.enabled and not (one.binding.system or one.binding.action.startswith(("app.focus", "screen."))):
            found.setdefault(one.binding.description, []).append(one)
    return found


def _of_profiles(app: SparkdashApp) -> Iterator[SystemCommand]:
    verbs: tuple[tuple[str, str, Callable[[str], None]], ...] = (
        ("Switch to {}", "Asks first if that stops something", app.orders.switch),
        ("Describe {}", "What it needs, what would leave, and why it cannot run", app.orders.describe),
        ("Mark {} as A", "The A of the A/B pair", partial(app.orders.mark, side="A")),
        ("Mark {} as B", "The B of the A/B pair", partial(app.orders.mark, side="B")),
        ("Pull {}", "Fetch image and weights without starting anything", app.orders.pull),
        ("Release {}", "Let a parked profile start again", app.orders.release),
        ("Pin or unpin {}", "A pinned engine stays until a person stops it", app.orders.pin),
        ("Preload {} or not", "Load it when the daemon starts", app.orders.preload),
        ("Edit {}", "Its file, in your editor; checked before it is kept", app.orders.edit),
        ("Dry run of {}", "The command that would start its engine", app.orders.dry_run),
    )
    for profile in app.view.snapshot.profiles if app.view.snapshot else ():
        for title, about, action in verbs:
            run = partial(action, profile.name)
            yield SystemCommand(title.format(profile.name), about, run, discover=title is verbs[0][0])


def run_dashboard(url: str | None = None, box: Callable[[], BoxLook] | None = None) -> None:
    """Run the dashboard of the daemon at `url`, or of this user's, until the user quits; `box` as for the app."""
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[K")  # the first words of the start: at the end they would stand behind the prompt
        sys.stderr.flush()
    elif sys.stdout.isatty():  # Textual draws there: into a file, the terminal would stay blank
        sys.__stderr__ = sys.__stdout__  # type: ignore[misc]

    def connect() -> "DaemonClient":
        from sparkdash.tui.daemon_client import DaemonClient  # the control API takes a tenth of the start

        return DaemonClient(url)

    async def live() -> None:
        if (task := asyncio.current_task()) is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        kept = KeptChoices(paths.state_dir() / "dashboard.json")
        app = SparkdashApp(connect, address.resolve(url), box=box, kept=kept)
        try:
            await app.run_async()
        finally:
            if "daemon" in vars(app):
                await app.daemon.aclose()
        if task is not None and task.cancelling():  # the app took it for an end of its own
            raise asyncio.CancelledError

    try:
        asyncio.run(live())
    except asyncio.CancelledError:  # SIGTERM; by itself it would leave the terminal in another mode
        sys.exit(128 + signal.SIGTERM)
