"""A user who reports to an assistant over some months: people, projects, and values that change."""

# ruff: noqa: SIM905 - lists of words

import functools
import random
from datetime import UTC, datetime, timedelta

from benchmarks._talks import CHANGE, MONTHS, NAMES, NEVER, ONE, PLACES, TIME, TWO, Question, Said, Talk

_PROJECTS = "Falcon Meridian Sandstone Trellis Nimbus Cobalt Juniper Halyard Quartz Ember Lattice Monsoon".split()
_FACTS = (
    ("{p} is led by {n}.", "{n} handed {p} over, its new lead is {v}.", "Who is responsible for {p}?"),
    (
        "The budget for {p} was fixed at {v} thousand.",
        "Finance cut {p} to {v} thousand.",
        "How much may we spend on {p}?",
    ),
    ("{p} goes live on {v}.", "The launch of {p} slipped, it is {v} instead.", "What is the release date of {p}?"),
    (
        "For {p} we picked {v} as the supplier.",
        "We dropped that vendor, {p} buys from {v} now.",
        "Who delivers for {p}?",
    ),
)
_EVENTS = (
    ("{n} fell ill, so the demo of {p} was given by {m}.", "Who stepped in at the presentation of {p}?"),
    ("In the review of {p}, {n} found that {x} was the cause of the outage.", "What made {p} go down?"),
    ("{n} complained that {p} has {x}, we owe an answer.", "What did {n} criticise about {p}?"),
    ("We agreed with {n} to test {p} at {y} first.", "Where does the pilot of {p} take place?"),
    ("{n} asked for a day off to visit {y}.", "Which destination did {n} request leave for?"),
    ("The contract for {p} was signed by {n} in {y}.", "In what city was the agreement for {p} concluded?"),
    ("{n} proposed to rewrite the part of {p} with {x}.", "What did {n} suggest to change in {p}?"),
)
_CAUSES = (
    "an expired certificate|a full disk|a missing index|slow approvals|bad labels|a loose cable|the old scheduler|"
    "wrong time zones|a memory leak|duplicate orders|the payment screen|unclear invoices"
).split("|")
_VENDORS = "Orbis Freight|Kellermann|Tanaka Parts|Oakline|Silva Print|Deltacom|Brisk Couriers|Pinewood".split("|")
_WORK = (
    "The stand-up took longer than it should have.|I answered most of the mail before lunch.|Nobody has looked at the "
    "backlog since the holidays.|The printer on the second floor is out of order again.|We still wait for the slides.|"
    "The customer was friendly but in a hurry.|There is a new coffee machine, it is loud.|My calendar is a mess this "
    "week.|The numbers look better than last month.|I will go through the comments tomorrow.|Two people were on the "
    "wrong call.|The intern did a fine job with the charts.|Please keep the notes short.|It was a long day in the "
    "office.|The tests are green again.|I moved the retro to the afternoon.|Travel costs went up a little.|The wiki "
    "needs some love.|We talked about priorities without a result.|The room was too hot to think."
).split("|")
_AGENT = (
    "Noted. Is there anything that I should prepare?|Understood, I added it to the summary of today.|Thanks for the "
    "update. Do you want a draft for the team?|All right. That fits what you told me about the schedule.|Got it. I "
    "would raise this in the next meeting.|Okay. Let me know when there is a decision."
).split("|")


class Work:
    """Reports of a user: status without facts, and between it facts, changes and events."""

    def __init__(self, seed: int, days: int) -> None:
        self.talk = Talk()
        self._dice = dice = random.Random(seed)
        self._days = days
        self._people, self._projects = dice.sample(NAMES, 10), dice.sample(_PROJECTS, 9)
        self._never = [(project, place) for project in self._projects[:3] for place in (1, 3) if dice.random() < 0.8]
        self._known: dict[tuple[str, int], list[str]] = {}
        """The sentences about each fact, the newest last."""

    def build(self) -> Talk:
        """Return the reports and the questions about them."""
        dice, total = self._dice, 290
        facts = [(name, place) for name in self._projects for place in range(4) if (name, place) not in self._never]
        pairs = [(name, place) for name in self._projects for place in range(len(_EVENTS))]
        plan = [functools.partial(self._fact, *one) for one in (*facts, *dice.sample(facts, 14))]
        plan += [functools.partial(self._event, *one) for one in dice.sample(pairs, 34)]
        dice.shuffle(plan)
        spots = sorted(dice.sample(range(total), len(plan)))
        start = datetime.now(UTC) - timedelta(days=self._days)
        for number in range(total):
            at = start + timedelta(days=self._days * number / total, minutes=dice.randint(0, 200))
            said: list[str] = [*dice.sample(_WORK, dice.randint(2, 7))]
            if number in spots:
                said.insert(dice.randint(0, len(said)), plan[spots.index(number)](at))
            answer = " ".join(dice.sample(_AGENT, dice.randint(1, 3)))
            self.talk.messages += [Said(True, " ".join(said), at), Said(False, answer, at + timedelta(seconds=20))]
        self._ask()
        return self.talk

    def _value(self, place: int, number: int) -> str:
        if place == 0:
            return self._people[number % len(self._people)]
        if place == 1:
            return str(20 + 5 * number)
        return f"{1 + number % 28} {MONTHS[(number * 5) % 12]}" if place == 2 else _VENDORS[number % len(_VENDORS)]

    def _fact(self, project: str, place: int, at: datetime) -> str:
        del at
        before = self._known.setdefault((project, place), [])
        form, value = _FACTS[place][1 if before else 0], self._value(place, self._dice.randrange(100))
        name = self._dice.choice(self._people) if before else value
        before.append(form.format(p=project, v=value, n=name))
        return before[-1]

    def _event(self, project: str, place: int, at: datetime) -> str:
        dice, (form, question) = self._dice, _EVENTS[place]
        one, other = dice.sample(self._people, 2)
        words = {"n": one, "m": other, "p": project, "x": dice.choice(_CAUSES), "y": dice.choice(PLACES)}
        text = form.format(**words)
        self.talk.questions.append(Question(ONE, question.format(**words), (text,)))
        if "{p}" in form:
            asked = f"What happened with {project} in {MONTHS[at.month - 1]}?"
            self.talk.questions.append(Question(TIME, asked, (text,)))
        return text

    def _ask(self) -> None:
        questions = self.talk.questions
        for (project, place), texts in self._known.items():
            kind = CHANGE if len(texts) > 1 else ONE
            questions.append(Question(kind, _FACTS[place][2].format(p=project), (texts[-1],), tuple(texts[:-1])))
        for one, other in zip(self._projects, self._projects[1:], strict=False):
            evidence = (self._known[one, 2][-1], self._known[other, 2][-1])
            questions.append(Question(TWO, f"Which launch comes first, that of {one} or of {other}?", evidence))
        for project, place in self._never:
            others = tuple(text for (_, kind), texts in self._known.items() if kind == place for text in texts)
            questions.append(Question(NEVER, _FACTS[place][2].format(p=project), (), others))


def work(seed: int, days: int = 180) -> Talk:
    """Return reports of a user to an assistant over some months."""
    return Work(seed, days).build()
