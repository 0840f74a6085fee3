"""Two friends who chat over some months: facts stand between small talk, and answers may follow their questions."""

# ruff: noqa: SIM905 - lists of words

import functools
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from benchmarks._talks import CHANGE, MONTHS, NAMES, NEVER, ONE, PLACES, TIME, TWO, Question, Said, Talk


@dataclass(frozen=True)
class _Topic:
    """What one of the friends may tell: their line, the other's reply, a further line, and questions for both."""

    line: str
    reply: str
    more: str
    question: str
    question_more: str
    when: str
    values: tuple[str, ...]
    details: tuple[str, ...]


def _topic(text: str, values: str, details: str) -> _Topic:
    line, reply, more, question, question_more, when = (one.strip() for one in text.strip().split("\n"))
    return _Topic(line, reply, more, question, question_more, when, tuple(values.split("|")), tuple(details.split("|")))


_TOPICS = (
    _topic(
        """I finally signed up for {v} lessons, something I had put off for ages.
        Wow, good for you! Who is teaching you?
        A retired {d} from my street, she is patient with beginners.
        What lessons did {who} sign up for?
        What did the retired teacher of {who} do before?
        When did {who} begin the classes?""",
        "cello|pottery|fencing|sign language|rock climbing|ballroom dancing|calligraphy",
        "dentist|pilot|librarian|postwoman|chemist|stage actress",
    ),
    _topic(
        """We adopted a {v} from the shelter, the kids could not stop smiling.
        How sweet! Did you pick a name already?
        The little one answers to {d}, that was my daughter's idea.
        What kind of pet does {who} have?
        What name does the pet that {who} adopted answer to?
        When did {who} adopt the pet from the shelter?""",
        "greyhound|tabby cat|pair of rabbits|cockatiel|three-legged terrier|tortoise",
        "Pickles|Captain|Noodle|Juniper|Waffles|Sputnik",
    ),
    _topic(
        """My boss told me I got the promotion, so from now on I lead the {v} team.
        Congratulations! How will you celebrate?
        I booked a table at a {d} place by the river.
        Which team does {who} lead since the promotion?
        What sort of cuisine did {who} choose to celebrate?
        When did {who} get promoted by the boss?""",
        "logistics|accessibility|claims|pediatrics|curriculum|data quality",
        "Georgian|Peruvian|Lebanese|Korean|Ethiopian|Sardinian",
    ),
    _topic(
        """I twisted my {v} on the stairs and the doctor wants me to rest it.
        Ouch, get well soon! Does it hurt a lot?
        Only at night. The {d} exercises help more than the pills.
        What injury did {who} have?
        What kind of exercises help {who} at night?
        When did {who} get hurt?""",
        "ankle|left wrist|shoulder|knee|lower back",
        "breathing|stretching|swimming|balance|yoga",
    ),
    _topic(
        """I just finished reading {v} and could not put it down.
        Ooh, should I add it to my pile? What did you like?
        The chapter about the {d} made me cry on the train.
        Which book did {who} finish reading?
        Which part of the novel moved {who}?
        When did {who} finish the book?""",
        "The Salt Road|A Winter of Kites|Eleven Doors|The Beekeeper's Map|Harbour of Glass",
        "lighthouse|orphanage|lost letter|flooded village|old piano",
    ),
    _topic(
        """We are back from {v}, and I already miss the food.
        Jealous! What was the highlight?
        Definitely the {d}, even though it rained the whole time.
        Where did {who} go on vacation?
        What was the highlight of the trip for {who}?
        When did {who} come back from the vacation with the good food?""",
        "|".join(PLACES[:9]),
        "night market|puppet theatre|boat to the caves|old observatory|cooking class|cable car",
    ),
    _topic(
        """I baked {v} for the neighbours and nobody left a crumb.
        Yum, is it your own recipe?
        It is my {d}'s, written on the back of an envelope.
        What did {who} bake for the neighbours?
        From whom does {who} have the recipe?
        When did {who} bake for the neighbours?""",
        "plum dumplings|a lemon tart|cardamom buns|a walnut roll|rhubarb crumble",
        "grandfather|aunt|piano teacher|godmother|first landlord",
    ),
    _topic(
        """I am volunteering at the {v} on Saturdays now, it gives me so much back.
        That is lovely. What do you do there?
        Mostly I sort the {d} and talk to people who come in.
        Where is {who} volunteering?
        What does {who} sort for people on Saturdays?
        Since when does {who} do the volunteer work?""",
        "soup kitchen|animal rescue|night shelter|toy library|community garden|hospice",
        "donations|seedlings|coats|letters|picture books|canned goods",
    ),
    _topic(
        """The car broke down again, this time it was the {v}.
        Oh no! Will you repair it or buy another one?
        My cousin offered me his old {d}, so I may take that.
        What was wrong with {who}'s vehicle?
        Which old vehicle did the cousin offer to {who}?
        When did the car of {who} break down?""",
        "gearbox|alternator|cooling pump|clutch|fuel line",
        "scooter|camper van|pickup|station wagon|cargo bike",
    ),
    _topic(
        """I painted the {v} last weekend and it looks like another home.
        Send a picture! Which colour did you choose?
        A warm {d}, it changes with the light of the evening.
        Which room did {who} paint?
        What shade are {who}'s walls?
        When did {who} paint at home?""",
        "hallway|nursery|kitchen|attic|study",
        "terracotta|olive green|dusty pink|mustard|pale turquoise",
    ),
    _topic(
        """I entered the {v} contest and came in second!
        Amazing! What did you win?
        A voucher for a {d}, which I will give to my brother.
        Which contest did {who} enter?
        For what did {who} win a voucher?
        When was {who} runner-up?""",
        "photography|pie eating|chess|poetry|sandcastle|short film",
        "hot air balloon ride|massage|wine tasting|theatre evening|bakery course",
    ),
    _topic(
        """Therapy has been helping, we talked about my fear of {v}.
        I am proud of you for going. What works best?
        Keeping a {d} beside the bed, strange as it sounds.
        Which fear did {who} talk about in therapy?
        What does {who} keep beside the bed?
        When did {who} speak about mental health?""",
        "flying|crowds|being forgotten|deep water|failure",
        "notebook|jar of stones|small lamp|list of songs|photo of the sea",
    ),
    _topic(
        """My sister had her baby, a healthy {v}, and I held the tiny hand for an hour.
        Aww, congratulations aunt-to-be-no-more! What is the name?
        They call the child {d}, after our grandmother's village.
        Did the sister of {who} have a boy or a girl as a baby?
        How is {who}'s niece or nephew named?
        When did the sister of {who} have her baby?""",
        "girl|boy",
        "Maren|Elio|Sanna|Tamsin|Orla",
    ),
    _topic(
        """I switched to {v} in the mornings because coffee makes me shaky.
        Sensible! Do you sleep better?
        Yes, and I also stopped looking at {d} after dinner.
        What does {who} drink in the mornings instead of coffee?
        What habit did {who} give up in the evening?
        When did {who} switch away from coffee?""",
        "rooibos tea|barley water|hot chocolate|ginger infusion|carrot juice",
        "the news|work mail|crime shows|chess puzzles|auction sites",
    ),
)
_CHANGES = (
    (
        "My new apartment is on {v}, just around the corner from the park.",
        "We moved again! Home is {v} now.",
        "Where is the new home of {who}?",
        "Cedar Lane|Mill Road|Station Street|Harbour Row|Castle Hill|Orchard Close",
    ),
    (
        "The wedding is set for {v}, the invitations go out soon.",
        "We had to push the wedding to {v}, the hall was double booked.",
        "For which date is the wedding of {who} set?",
        "the 3rd of June|the 19th of September|the 8th of October|the 22nd of July",
    ),
    (
        "I started at {v} this week, everyone is kind to me.",
        "I quit, and joined {v} instead.",
        "Where did {who} start or join to work?",
        "Northwind Insurance|Bluebird Bakery|the city archive|Halden Robotics|the tram company",
    ),
    (
        "My car is a {v}, it takes me everywhere.",
        "I sold it. The one I drive today is a {v}.",
        "Which car does {who} drive?",
        "grey hatchback|red convertible|white van|blue electric wagon",
    ),
)
_GREETINGS = (
    "Hey {other}! How have you been?|Hi {other}, long time no see! What is new?|Good to hear from you, {other}! "
    "How was your week?|Hello {other}! Hope you are doing well.|Hey {other}, guess what!"
).split("|")
_THINGS = (
    "garden kitchen bicycle concert museum recipe blanket guitar picnic library balcony necklace puzzle candle sunset "
    "neighbour market lake film photo album sweater painting festival train beach dinner birthday letter window tree "
    "school office ticket camera river bakery cat song game market book car trip house dog team doctor street"
).split()
_QUALITIES = (
    "lovely quiet funny strange cosy tiny bright messy gentle wonderful tiring old colourful peaceful noisy charming "
    "fresh proud warm simple"
).split()
_DOINGS = (
    "clean|share|visit|draw|look after|talk about|show you|enjoy|fix|move|think of|carry|find|choose|return to|"
    "write about|pack|laugh at|wait for|sing about"
).split("|")
_CHAT = (
    "Thanks, that means a lot to me.|I know what you mean.|You always know how to cheer me up.|That {t} was {q}, "
    "I must say.|Life has been {q}, but I cannot complain.|Nothing beats a {q} {t} after a long day, right?|I "
    "wish I had been there to {d} the {t}!|We should {d} a {t} together some time.|My mother would {d} every {t} "
    "she sees.|Haha, you and your {q} {t}!|I have been trying to {d} my {t} lately.|A {q} {t} always helps me to "
    "relax. What about you?|The weather was perfect for a {t}.|Wow, a {q} {t}! Tell me more.|Sometimes you just "
    "have to {d} a {t} and see.|I look forward to the {t} at the end of the month.|Do not forget to stay "
    "positive.|Keep me posted about the {t}, okay?|Did anybody {d} the {t} in the end?|I took a photo of the {t},"
    " it came out {q}.|Seeing a {q} {t} gives me energy.|The kids {d} the {t} all week, they never get tired.|It "
    "felt {q} at first.|A {t}, a {t2} and tea: that was my Sunday.|You deserve a {q} {t} after all that.|Any "
    "plans for the {t}?|The {t} has been stressful, everything is {q}.|I love how {q} your {t} is.|Take care!|The"
    " {t} next to the {t2} is {q}, have you seen it?|My neighbour wants to {d} the {t}, it is quite a show.|It "
    "reminds me of the {q} {t} from our childhood."
).split("|")


def _small_talk(dice: random.Random, most: int = 1) -> str:
    """Return some sentences that tell nothing, with words that others use, too."""
    return " ".join(
        sentence.format(
            t=dice.choice(_THINGS), t2=dice.choice(_THINGS), q=dice.choice(_QUALITIES), d=dice.choice(_DOINGS)
        )
        for sentence in dice.sample(_CHAT, dice.randint(1, most))
    )


_LEADS = "So,|You will not believe it:|By the way,|Big news:|Oh, and|Remember what I planned?|Well,".split("|")


class Friends:
    """A chat of two friends: long, with small talk, partly in other words than the questions."""

    def __init__(self, seed: int, days: int) -> None:
        self.talk = Talk()
        self._dice = dice = random.Random(seed)
        self._days = days
        self._names = dice.sample(NAMES, 2)
        self._plan = [(who, topic) for topic in _TOPICS for who in (0, 1)]
        dice.shuffle(self._plan)
        self._silent = [self._plan.pop() for _ in range(6)]  # never told
        self._changes = [(dice.randrange(2), change) for change in _CHANGES]
        self._values = [dice.sample(one[3].split("|"), 2) for _, one in self._changes]
        self._told: dict[tuple[int, str], tuple[str, str, str, str]] = {}

    def build(self) -> Talk:
        """Return the chat and the questions about it."""
        dice, sessions = self._dice, 24
        half = len(self._plan) // 2
        tell = [functools.partial(self._tell, *one) for one in self._plan]
        changes = [[functools.partial(self._change, at, step) for at in range(len(_CHANGES))] for step in (0, 1)]
        first, second = [*tell[:half], *changes[0]], [*tell[half:], *changes[1]]
        steps = [*dice.sample(first, len(first)), *dice.sample(second, len(second))]
        start = datetime.now(UTC) - timedelta(days=self._days)
        for number in range(sessions):
            at = start + timedelta(days=self._days * number // sessions, minutes=dice.randint(0, 600))
            at = self._say(0, dice.choice(_GREETINGS).format(other=self._names[1]), at)
            at = self._say(1, dice.choice(_GREETINGS).format(other=self._names[0]), at)
            for step in steps[len(steps) * number // sessions : len(steps) * (number + 1) // sessions]:
                at = step(at)
                for turn in range(2 * dice.randint(3, 10)):
                    at = self._say(turn % 2, _small_talk(dice, 5), at)
        self._ask()
        return self.talk

    def _say(self, who: int, text: str, at: datetime) -> datetime:
        self.talk.messages.append(Said(who == 0, f"{self._names[who]}: {text}", at))
        return at + timedelta(minutes=self._dice.randint(1, 4))

    def _tell(self, who: int, topic: _Topic, at: datetime) -> datetime:
        dice = self._dice
        value, detail = dice.choice(topic.values), dice.choice(topic.details)
        line, more = topic.line.format(v=value), topic.more.format(d=detail)
        self._told[who, topic.line] = (line, more, value, f"{MONTHS[at.month - 1]} {at.year}")
        at = self._say(0, _small_talk(dice), at) if who else at
        at = self._say(who, f"{dice.choice(_LEADS)} {line} {_small_talk(dice)}", at)
        at = self._say(1 - who, f"{topic.reply} {_small_talk(dice)}", at)
        at = self._say(who, f"{more} {_small_talk(dice)}", at)
        return at if who else self._say(1, _small_talk(dice), at)

    def _change(self, place: int, step: int, at: datetime) -> datetime:
        who, forms = self._changes[place]
        text = forms[step].format(v=self._values[place][step])
        at = self._say(0, _small_talk(self._dice), at) if who else at
        at = self._say(who, f"{_small_talk(self._dice)} {text}", at)
        return at if who else self._say(1, _small_talk(self._dice), at)

    def _ask(self) -> None:
        questions, topics = self.talk.questions, {topic.line: topic for topic in _TOPICS}
        for (who, line), (first, more, value, month) in self._told.items():
            topic, name = topics[line], self._names[who]
            questions.append(Question(ONE, topic.question.format(who=name), (first,)))
            questions.append(Question(ONE, topic.question_more.format(who=name), (more,)))
            questions.append(Question(TIME, topic.when.format(who=name), (first,)))
            if self._dice.random() < 0.3:
                questions.append(Question(TIME, f"What did {name} tell in {month}? I mean {value}.", (first,)))
        for line in [line for (who, line) in self._told if who == 0 and (1, line) in self._told]:
            asked = topics[line].question.format(who=" and ".join(self._names)).replace(" does ", " do ")
            questions.append(Question(TWO, asked, (self._told[0, line][0], self._told[1, line][0])))
        for (who, forms), values in zip(self._changes, self._values, strict=True):
            old, new = (forms[step].format(v=values[step]) for step in (0, 1))
            questions.append(Question(CHANGE, forms[2].format(who=self._names[who]), (new,), (old,)))
        for who, topic in self._silent:
            wrong = self._told.get((1 - who, topic.line))
            asked = topic.question.format(who=self._names[who])
            questions.append(Question(NEVER, asked, (), (wrong[0],) if wrong else ()))


def friends(seed: int, days: int = 200) -> Talk:
    """Return a chat of two friends over some months."""
    return Friends(seed, days).build()
