"""The gateway's own count: running requests, rates, tokens, and energy, held against a computation of known rates."""

import asyncio
import time
from typing import Any

import pytest
from recorded_streams import PATHS, dialect_of

from sparkdash.domain.request import RequestState
from sparkdash.gateway.protocol.route import Dialect
from sparkdash.gateway.protocol.tap import Tap, TokenUsage
from sparkdash.gateway.traffic_meter import MeteredRequest, TokenEstimates, TrafficMeter
from sparkdash.telemetry.power import GAP_S, EnergyMeter, EnergyUse, Power

CHAT = "/v1/chat/completions"
ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: {"usage":{"completion_tokens":%d}}\n\ndata: [DONE]\n\n'


def text_event(words: str = "word ") -> bytes:
    return b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n' % words.encode()


class Driver:
    """A meter, and requests whose engine sends a token every `1 / rate` seconds."""

    def __init__(self) -> None:
        self.now = 100.0
        self.meter = TrafficMeter(lambda: self.now)

    def ask(self, number: str, profile: str = "a", *, stream: bool = True, here: bool = True) -> MeteredRequest:
        request = self.meter.begin(number, profile, CHAT)
        request.granted(profile, here=here)
        if stream:
            request.answer = Tap(Dialect.CHAT)
            request.answer.feed(ROLE, self.now)
        return request

    def say(self, request: MeteredRequest, tokens: int = 1, events: int = 1) -> None:
        assert isinstance(request.answer, Tap)
        for _ in range(events):
            begins = request.answer.first is None
            request.answer.feed(text_event("word " * tokens), self.now)
            if begins:
                request.began_text(0.5)

    def look(self, power_w: float | None = None) -> Any:
        power = None if power_w is None else Power(power_w)
        return self.meter.look(self.now, 1e9 + self.now, power)

    def run(self, seconds: int, requests: dict[str, tuple[MeteredRequest, int]], power_w: float | None = None) -> Any:
        """Let the requests decode so many events a second, looked at each second."""
        for _ in range(seconds):
            for tenth in range(10):
                self.now += 0.1
                for request, rate in requests.values():
                    self.say(request, events=rate * (tenth + 1) // 10 - rate * tenth // 10)
            looked = self.look(power_w)
        return looked


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_a_running_stream_tells_its_tokens_and_the_rate_of_its_last_seconds(driver: Driver) -> None:
    request = driver.ask("r1")
    assert driver.look().requests["r1"].tok_s is None
    driver.run(6, {"r1": (request, 50)})
    looked = driver.run(4, {"r1": (request, 20)})
    live = looked.requests["r1"]
    assert (live.output_tokens, live.estimated) == (380, True)
    assert live.tok_s == pytest.approx(20.0)
    assert live.rate_s == pytest.approx(3.0, abs=0.6)
    assert looked.profiles["a"].decode_tok_s == pytest.approx(20.0)
    assert looked.profiles["a"].rate_s == pytest.approx(2.0, abs=0.6)
    driver.now += 40
    silent = driver.look().requests["r1"]
    assert silent.silent_s == pytest.approx(40.0)


def test_the_first_tokens_of_an_instant_are_no_rate(driver: Driver) -> None:
    """Neither 0 nor thousands."""
    request = driver.ask("r1")
    driver.now += 5
    driver.say(request, events=3)
    driver.now += 0.05
    live = driver.look().requests["r1"]
    assert (live.output_tokens, live.tok_s) == (3, None)


def test_the_count_goes_on_where_the_tap_has_dropped_the_answers_begin(driver: Driver) -> None:
    """A tap keeps some kilobytes of an answer, and a long answer has a hundred times as much."""
    request = driver.ask("r1")
    driver.say(request, events=5000)
    assert driver.look().requests["r1"].output_tokens == 5000


def test_an_engine_that_counts_in_each_event_is_believed(driver: Driver) -> None:
    request = driver.ask("r1")
    assert isinstance(request.answer, Tap)
    driver.say(request)
    request.answer.feed(
        b'data: {"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":77}}\n\n',
        driver.now,
    )
    live = driver.look().requests["r1"]
    assert (live.output_tokens, live.estimated) == (77, False)


def test_tokens_of_speculation_are_estimated_by_what_earlier_answers_held(driver: Driver) -> None:
    """Three tokens come in each event; after one answer the estimate says so."""
    request = driver.ask("old")
    assert isinstance(request.answer, Tap)
    driver.say(request, tokens=3, events=100)
    request.answer.feed(END % 300, driver.now)
    driver.meter.end(request, TokenUsage(prompt=50, completion=300), 0.5)
    request = driver.ask("new")
    driver.say(request, tokens=3, events=100)
    assert driver.look().requests["new"].output_tokens == pytest.approx(300, rel=0.02)


@pytest.mark.parametrize("stream", [
    *(f"llama.cpp-0c1e57098-base-{dialect}-stream" for dialect in PATHS), "vllm-0.32.0-base-chat-stream-usage",
    "vllm-0.32.0-base-messages-stream",
])  # fmt: skip
def test_events_with_text_of_real_engines_are_their_tokens(stream: str, recorded_body: Any) -> None:
    """The engine's own count within 3 %, wherever the stream is cut: a token without text has no event."""
    whole = recorded_body(stream)
    events = [event + b"\n\n" for event in whole.split(b"\n\n") if event]
    for pieces in (events, [whole], [whole[at : at + 37] for at in range(0, len(whole), 37)]):
        tap = Tap(dialect_of(stream))
        for piece in pieces:
            tap.feed(piece, 1.0)
        assert tap.text_events == pytest.approx(tap.usage().completion, rel=0.03)


def test_a_profiles_figures_are_those_of_all_its_requests(driver: Driver) -> None:
    driver.look()
    a, b, other = driver.ask("a"), driver.ask("b"), driver.ask("c", "beside")
    driver.meter.begin("w", "a", CHAT)
    looked = driver.run(5, {"a": (a, 40), "b": (b, 20), "c": (other, 10)})
    figures = looked.profiles["a"]
    assert (figures.in_flight, figures.waiting) == (2, 1)
    assert figures.decode_tok_s == pytest.approx(60.0)
    assert figures.decode_each_tok_s == pytest.approx(30.0)
    assert figures.ttft_p50_s == pytest.approx(0.5)
    assert looked.profiles["beside"].decode_tok_s == pytest.approx(10.0)
    driver.meter.end(a, TokenUsage(prompt=1000, cached=600, completion=200), 0.5)
    driver.meter.end(b, TokenUsage(prompt=500, cached=100, completion=100), 0.5)
    figures = driver.look().profiles["a"]
    assert (figures.requests, figures.prompt_tokens, figures.cached_tokens) == (2, 1500, 700)
    assert figures.output_tokens == 300
    assert figures.prompt_tok_s == pytest.approx(800 / 1.0)
    driver.now += 5
    assert driver.look().profiles["a"].decode_tok_s == 0.0


def test_answers_without_a_stream_count_at_their_own_rate(driver: Driver) -> None:
    """Ten at a time, each 4 s long with 200 tokens: 500 tok/s, never a burst of thousands."""
    driver.look()
    open_ = [(driver.ask(f"0-{n}", stream=False), driver.now + 0.4 * (n + 1)) for n in range(10)]
    rates = []
    for second in range(1, 31):
        end = driver.now + 1
        for n, (request, ends) in enumerate(open_):
            if ends <= end:
                driver.now = ends
                driver.meter.end(request, TokenUsage(prompt=10, completion=200), None)
                open_[n] = (driver.ask(f"{second}-{n}", stream=False), ends + 4)
        driver.now = end
        rates.append(driver.look().profiles["a"].decode_tok_s)
    assert rates[-1] == pytest.approx(500, rel=0.1)
    assert max(rates) < 700


def test_side_requests_are_no_traffic(driver: Driver) -> None:
    driver.meter.begin("t", "a", "/tokenize").granted("a")
    assert driver.look().requests == {}


def test_a_prompt_is_estimated_from_its_body_and_the_ratio_is_learned() -> None:
    estimates = TokenEstimates()
    assert estimates.prompt_tokens(4000) == 1000
    for _ in range(20):
        estimates.learn_prompt(4000 / 800)
    assert estimates.prompt_tokens(4000) == pytest.approx(800, rel=0.01)


def test_energy_is_the_integral_of_the_power_with_the_idle_share_apart() -> None:
    """10 s at 10 W idle, a ramp to 60 W, 10 s at 60 W: by hand 100 J, 35 J, 600 J."""
    meter = EnergyMeter()
    for second in range(11):
        meter.add(float(second), 1e9 + second, Power(10.0), {})
    for second in range(11, 22):
        meter.add(float(second), 1e9 + second, Power(60.0), {"r": EnergyUse(10.0, float(second), 5)})
    energy = meter.energy
    assert energy is not None
    assert energy.idle_wh * 3600 == pytest.approx(100.0)
    assert energy.busy_wh * 3600 == pytest.approx(635.0)
    assert energy.sensor == "GPU only"
    meter.add(21 + GAP_S + 1, 2e9, Power(60.0), {})
    gap = meter.energy
    assert gap is not None
    assert (gap.busy_wh, gap.unknown_s) == (energy.busy_wh, GAP_S + 1)


def test_a_requests_energy_is_its_share_by_tokens(driver: Driver) -> None:
    """60 W for 10 s: 40 and 20 tok/s beside each other share 600 J as 400 and 200."""
    driver.look(60.0)
    a, b = driver.ask("a"), driver.ask("b", "beside")
    looked = driver.run(10, {"a": (a, 40), "b": (b, 20)}, power_w=60.0)
    assert looked.profiles["a"].energy_wh * 3600 == pytest.approx(400, rel=0.01)
    assert looked.profiles["a"].wh_per_1k == pytest.approx(1000 * 400 / 3600 / 400, rel=0.02)
    assert driver.meter.end(a, TokenUsage(completion=400), 0.5) == pytest.approx(400 / 3600, rel=0.01)
    assert driver.meter.end(b, TokenUsage(completion=200), 0.5) == pytest.approx(200 / 3600, rel=0.01)


def test_work_that_another_box_does_costs_no_energy_here(driver: Driver) -> None:
    """A remote service: its tokens are counted, and this box is idle meanwhile."""
    driver.look(10.0)
    far = driver.ask("far", "cloud", here=False)
    looked = driver.run(10, {"far": (far, 40)}, power_w=10.0)
    assert (looked.energy.busy_wh, looked.profiles["cloud"].energy_wh) == (0.0, None)
    assert looked.profiles["cloud"].decode_tok_s == pytest.approx(40.0)
    assert driver.meter.end(far, TokenUsage(completion=400), 0.5) is None


def test_names_that_no_profile_has_leave_nothing_behind(driver: Driver) -> None:
    """A client may type a new one each time."""
    for number in range(50):
        request = driver.meter.begin(str(number), f"typo-{number}", CHAT)
        request.body_bytes = 400
        assert request.prompt_estimate() == 100
        driver.look()
        driver.meter.end(request, None, None)
    assert driver.look().profiles == {}


def test_a_short_request_and_one_without_a_sensor_have_no_energy(driver: Driver) -> None:
    driver.look(60.0)
    short = driver.ask("short")
    driver.now += 0.3
    assert driver.meter.end(short, TokenUsage(completion=5), 0.1) is None
    driver.now += 0.7
    assert driver.look(60.0).profiles["a"].energy_wh * 3600 == pytest.approx(18)
    blind = driver.ask("blind")
    driver.run(3, {"blind": (blind, 10)}, power_w=None)
    assert driver.meter.end(blind, TokenUsage(completion=30), 0.1) is None


def ask_at_length(house: Any, words: str) -> asyncio.Task[Any]:
    said = [{"role": "user", "content": words}]
    return asyncio.create_task(house.chat(stream=True, max_tokens=400, messages=said))


async def test_a_request_through_the_gateway_is_seen_while_it_streams(house: Any, tools: Any) -> None:
    """A simulated engine: the tokens so far never go back, and end at the engine's own count."""
    meter = house.app._deps.meter
    async with tools.simulated_engine(house):
        asked = ask_at_length(house, "Tell me of the sea.")
        seen: list[int] = []
        while not asked.done():
            for live in meter.look(time.monotonic(), time.time(), Power(50.0)).requests.values():
                seen.append(live.output_tokens or 0)
            await asyncio.sleep(0)
        row = await house.ended()
    assert seen == sorted(seen)
    assert row.state is RequestState.DONE
    assert row.prompt_estimate is not None
    figures = meter.look(time.monotonic(), time.time(), Power(50.0)).profiles["alpha"]
    assert (figures.in_flight, figures.output_tokens) == (0, row.completion_tokens)
    assert seen[-1] <= row.completion_tokens


@pytest.mark.parametrize(("words", "known"), [("Tell me of the sea.", True), ("data:image/png;base64,AAAA", False)])
async def test_a_picture_in_a_body_says_nothing_of_the_prompts_tokens(
    house: Any, tools: Any, words: str, known: bool
) -> None:
    async with tools.simulated_engine(house):
        asked = ask_at_length(house, words)
        row = await house.in_state(RequestState.STREAMING)
        await asked
    assert (row.prompt_estimate is not None) is known
