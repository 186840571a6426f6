"""Dialogs: a question before something is stopped, a text to read, a plan to begin; and the palette of commands."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import ClassVar, Generic, TypeVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import CommandInput, CommandPalette
from textual.screen import ModalScreen
from textual.widgets import Input
from textual.worker import WorkerCancelled, WorkerFailed

from sparkdash.errors import SparkdashError
from sparkdash.tui.mirror import View
from sparkdash.tui.orders import AppServices
from sparkdash.tui.text import EMPTY, EdgeText, Line, LinesForWidth, Style, clip, frame, join, key_hint, length, styled
from sparkdash.tui.widgets.header import KEY_NAMES
from sparkdash.tui.widgets.panel import AS_TALL_AS_NEEDED, Field, Panel

PAGE, ALL, WHEEL = 10, 100_000, 3
"""Scroll steps in lines."""
Answer = TypeVar("Answer")
Planned = TypeVar("Planned")
WIDEST, LEAST = 72, 44
"""Widest prose, which is hard to read beyond, and narrowest frame, in cells."""


class DialogText(Panel):
    """Framed text of a dialog, as wide as it needs to be."""

    def __init__(self, title: str, told: LinesForWidth, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title = title
        self._told = told
        self.keys = keys
        self._top = 0

    def wanted(self, width: int) -> int:
        lines = self._told(min(width - 4, WIDEST))
        longest = max(length(line) for line in (*lines, styled(f"{self._title}    ")))
        return min(max(longest + 4, LEAST), width)

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - the words are given
        lines = self._told(min(width - 4, WIDEST))
        top, room = 0, len(lines)
        if height != AS_TALL_AS_NEEDED:  # to be measured must not move the words
            room = height - 2
            top = self._top = max(min(self._top, len(lines) - room), 0)
        shown = [clip(line, width - 4) for line in lines[top : top + room]]
        far = styled("j k scroll", Style.DIM) if len(lines) > room else EMPTY
        keys = join([key_hint(*pair) for pair in self._fitting(width)], styled("   "))
        return frame(shown, width, EdgeText(styled(self._title, Style.STRONG), far), EdgeText(keys))

    def _fitting(self, width: int) -> Sequence[tuple[str, str]]:
        """Return the keys whose hints fit into the lower edge: the first and the last one before the others."""
        shown = list(self.keys)
        while len(shown) > 2 and length(join([key_hint(*pair) for pair in shown], styled("   "))) > width - 6:
            shown.pop(-2)
        return shown

    def on_click(self, event: events.Click) -> None:
        at = 2
        for key, word in self._fitting(self.size.width):
            end = at + len(f"{key} {word}")
            if event.y == self.size.height - 1 and at <= event.x < end:
                event.stop()
                self.app.simulate_key(KEY_NAMES.get(key.split(" ")[0], key.split(" ")[0]))
                return
            at = end + 3

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        self.scroll(WHEEL)

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        self.scroll(-WHEEL)

    def scroll(self, by: int) -> None:
        self._top = max(self._top + by, 0)
        self.redraw()


class TextDialog(ModalScreen[Answer]):
    """Modal screen of one framed text, as wide as the text needs."""

    def __init__(self, title: str, told: LinesForWidth, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.text = DialogText(title, told, keys)

    @property
    def services(self) -> AppServices:
        return self.text.services

    def compose(self) -> ComposeResult:
        yield self.text

    def on_mount(self) -> None:
        self.on_resize()
        self.services.release_keys()

    def on_resize(self) -> None:
        self.text.styles.width = self.text.wanted(self.app.size.width)

    def show(self, view: View) -> None:
        """Draw what the words say now: a state, an age."""
        self.on_resize()
        self.text.show(view)

    def action_leave(self) -> None:
        self.dismiss()


class PlanDialog(TextDialog[Answer], Generic[Answer, Planned]):
    """Dialog that begins what was chosen, once the plan of exactly this choice was shown.

    Enter that comes before the plan begins what stops nothing as soon as the plan is there.
    """

    pause_s = 0.3
    """Time after a change of the choice before its plan is asked for."""

    def __init__(self, title: str, told: LinesForWidth, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__(title, told, keys)
        self.plan: Planned | None = None
        self.problem: str | None = None
        self.is_busy = False
        """Whether what was planned has begun."""
        self._is_wanted = False

    def chosen(self) -> object:
        """Return what the plan is for."""
        raise NotImplementedError

    async def planned(self) -> Planned:
        raise NotImplementedError

    def may_begin(self, plan: Planned) -> bool:
        raise NotImplementedError

    def stops(self, plan: Planned) -> bool:
        """Whether the plan stops something, so that it must be seen first."""
        raise NotImplementedError

    async def carry_out(self) -> None:
        """Begin what was planned; a SparkdashError becomes the problem."""
        raise NotImplementedError

    def on_mount(self) -> None:
        super().on_mount()
        self._ask()

    @property
    def thinking(self) -> str:
        if self.is_busy:
            return "it begins…"
        return "the plan is made… ⏎ is remembered" if self._is_wanted else "the plan is made…"

    def replan(self) -> None:
        self.plan, self.problem, self._is_wanted = None, None, False
        self.text.redraw()
        self.set_timer(self.pause_s, self._ask)

    def redraw(self) -> None:
        self.show(self.services.view)

    def action_begin(self) -> None:
        if self.is_busy:
            return
        self._is_wanted = self.plan is None and self.problem is None
        if self.plan is not None and self.may_begin(self.plan):
            self.is_busy = True
            self._begin()
        self.redraw()

    @work(group="plan", exclusive=True)
    async def _ask(self) -> None:
        if self.plan is not None or self.problem is not None:
            return
        choice, plan, problem = self.chosen(), None, None
        try:
            plan = await self.planned()
        except SparkdashError as error:
            problem = error.text()
        if choice == self.chosen() and not self.is_busy:
            self.plan, self.problem = plan, problem
            if self._is_wanted and plan is not None and not self.stops(plan):
                self.action_begin()
            self._is_wanted = False
            self.redraw()

    @work(group="begin")
    async def _begin(self) -> None:
        try:
            await self.carry_out()
        except SparkdashError as error:
            self.plan, self.problem = None, error.text()
        self.is_busy = False
        if self.is_attached:
            self.redraw()


class Dialog(TextDialog[str]):
    """Modal dialog; its result is the chosen key: "yes" where `yes` names an action, one of `others`, or ""."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n,q", "answer('')", "leave"),
        Binding("enter", "enter", "yes"),
        Binding("y", "yes", "yes"),
        Binding("j,down", "scroll_words(1)", "down"),
        Binding("k,up", "scroll_words(-1)", "up"),
        Binding("pagedown,space", f"scroll_words({PAGE})", "a page down"),
        Binding("pageup", f"scroll_words(-{PAGE})", "a page up"),
        Binding("end,G", f"scroll_words({ALL})", "to the end"),
        Binding("home,g", f"scroll_words(-{ALL})", "to the beginning"),
    ]

    def __init__(
        self,
        title: str,
        told: LinesForWidth,
        *,
        yes: str | None = None,
        again: str | None = None,
        others: Mapping[str, str] | None = None,
    ) -> None:
        """Make a dialog. `yes` labels the action, None means only reading; `again` is another key that agrees."""
        both = f"⏎ {again}" if again else "⏎"
        self._others = others or {}
        keys = [(both, yes)] if yes else []
        super().__init__(title, told, [*keys, *self._others.items(), ("esc", "back" if yes else "close")])
        self._yes = yes
        self._again = again

    def on_key(self, event: events.Key) -> None:
        """Accept the key that opened the dialog as yes: pressing it twice does the action."""
        if self._again and event.character == self._again:
            event.stop()
            self.action_yes()
        elif event.character in self._others:
            event.stop()
            self.dismiss(event.character)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:
            self.dismiss("")

    def action_answer(self, answer: str) -> None:
        self.dismiss(answer)

    def action_enter(self) -> None:
        self.dismiss("yes" if self._yes else "")

    def action_yes(self) -> None:
        if self._yes is not None:
            self.dismiss("yes")

    def action_scroll_words(self, by: int) -> None:
        self.text.scroll(by)


class PaletteField(CommandInput, Field):
    """Textual's input of a palette, whose Enter keeps its place behind the letters."""


class Palette(CommandPalette):
    """Textual's palette, whose Enter waits for the commands that fit all typed words."""

    def compose(self) -> ComposeResult:
        for widget in super().compose():
            is_input = isinstance(widget, CommandInput)
            yield PaletteField(placeholder=self._placeholder, select_on_focus=False) if is_input else widget

    def on_key(self, event: events.Key) -> None:
        """Type a key that came with the one that opened the palette: its field had no focus yet."""
        field = self.query_one(PaletteField)
        if field.takes(event):
            event.stop()
            event.prevent_default()
            field.post_message(events.Key(event.key, event.character))

    @on(Input.Submitted)
    def choose_once_found(self, event: Input.Submitted) -> None:
        event.stop()
        event.prevent_default()
        self.run_worker(self._choose_once_found())

    async def _choose_once_found(self) -> None:
        for worker in tuple(self.workers):
            if worker.node is self and worker.group == self._GATHER_COMMANDS_GROUP:
                with suppress(WorkerCancelled, WorkerFailed):
                    await worker.wait()
        self._select_or_command()
