"""A diary over some months: long entries with few facts, of which the next one has nothing to do with the last."""

# ruff: noqa: SIM905 - lists of words

import random
from datetime import UTC, datetime, timedelta

from benchmarks._talks import MONTHS, NAMES, NEVER, ONE, PLACES, TIME, TWO, Question, Said, Talk

_DIARY = (
    ("Tante {n} brought a jar of {x} and stayed until the last tram.", "What gift did {n} come with?"),
    ("At the lake in {y} I lost my {z}, and {n} dived for it twice.", "What went missing in {y}?"),
    (
        "{n} confessed over soup that the orchard in {y} has been sold.",
        "Which secret about {y} did I hear at the table?",
    ),
    (
        "The choir will sing my {x} song after all, {n} persuaded the conductor.",
        "Thanks to whom is my piece performed?",
    ),
    ("Found a {z} in the drawer that {n} must have left behind.", "Which forgotten object belongs to {n}?"),
    ("{n} has taken up beekeeping and was stung on the {b}.", "On which part of the body was {n} stung?"),
    ("I promised {n} to water the {x} while they are in {y}.", "Whose plants am I looking after?"),
)
_DIARY_DAYS = (
    "Slept badly, the wind rattled at the shutters all night.|Bread, eggs, a pear; too much coffee for one person.|The "
    "postman whistles the same tune every morning.|Fog over the fields until noon, then thin sun.|Wrote two pages and "
    "crossed out three.|My knees complain about the stairs more than I do.|The cat from number nine inspected the "
    "kitchen and disapproved.|Radio in the evening, something slow for strings.|Washed the windows, which nobody will "
    "notice.|Rain again. I like the sound on the tin roof.|Read old letters and did not throw any away.|A good walk, "
    "boots muddy up to the laces.|The market was half empty, too cold for most.|Early to bed, with cold feet."
).split("|")
_PRESERVES = "quince|sloe|fig|gooseberry|medlar|elderflower|basil|lavender".split("|")
_OBJECTS = "compass|thimble|silver spoon|fountain pen|opera glass|tin whistle|pocket watch|brooch".split("|")
_BODY = "ear|thumb|chin|elbow|big toe|eyelid".split("|")


def diary(seed: int, days: int = 240) -> Talk:
    """Return entries of a diary that an assistant receives without comment: long messages with few facts."""
    dice = random.Random(seed)
    people = dice.sample(NAMES, 12)
    talk = Talk()
    start = datetime.now(UTC) - timedelta(days=days)
    forms = [(form, who) for form in _DIARY for who in people]
    plan = dice.sample(forms, 48)
    never = [one for one in forms if one not in plan and "{n}" in one[0][1]][:10]
    total = 230
    spots = sorted(dice.sample(range(total), len(plan)))
    told: dict[tuple[str, str], str] = {}
    for number in range(total):
        at = start + timedelta(days=days * number / total)
        sentences: list[str] = [*dice.sample(_DIARY_DAYS, dice.randint(3, 7))]
        if number in spots:
            (form, question), who = plan[spots.index(number)]
            words = {
                "n": who,
                "x": dice.choice(_PRESERVES),
                "y": dice.choice(PLACES),
                "z": dice.choice(_OBJECTS),
                "b": dice.choice(_BODY),
            }
            text = form.format(**words)
            told[form, who] = text
            sentences.insert(dice.randint(0, len(sentences)), text)
            if "{n}" in question or "{y}" in question:
                talk.questions.append(Question(ONE, question.format(**words), (text,)))
            on = f"{MONTHS[at.month - 1]} {at.day}"
            talk.questions.append(Question(TIME, f"What did I write about {who} on {on}?", (text,)))
        talk.messages.append(Said(True, " ".join(sentences), at))
        talk.messages.append(Said(False, "Thank you for sharing.", at + timedelta(seconds=9)))
    for one, other in zip(plan[::4], plan[1::4], strict=False):
        evidence = (told[one[0][0], one[1]], told[other[0][0], other[1]])
        talk.questions.append(Question(TWO, f"What do you know about {one[1]} and about {other[1]}?", evidence))
    for (form, question), who in never:
        wrong = tuple(text for (other, _), text in told.items() if other == form)
        talk.questions.append(Question(NEVER, question.format(n=who, x="", y="", z="", b=""), (), wrong))
    return talk
