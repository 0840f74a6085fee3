"""Short dated chats of two people: every topic comes up often, so that its words alone find no answer."""

# ruff: noqa: E501, SIM905 - lists of words, and lines that belong together

import random
from datetime import UTC, datetime, timedelta

from benchmarks._talks import MONTHS, NAMES, NEVER, ONE, TIME, TWO, Question, Said, Talk

# topic; lines without facts; "fact = question" of what one of the two tells
_TOPICS = """
painting
I was at my easel until midnight again.|Painting keeps me sane.|Your brush work gets better each time!|Art says what I cannot.|That canvas is gorgeous, [shares a photo of a canvas on an easel]
Last weekend I finally finished the big one with the {v}, took me forever. = What is the subject of {who}'s completed picture? = sunflowers|herons|old bridge|thunderclouds
A gallery on the corner wants to hang three of mine, starting {d}! = Where are {who}'s works going to be exhibited? = soon|in spring|next week
I switched to {v}, oil gave me headaches. = Which medium does {who} prefer by now? = watercolours|gouache|acrylics|pastels
camping
Nothing like a night in the tent.|The kids ask about camping every day.|Marshmallows over the fire, always.|I love waking up outdoors.|We should camp together some day! [shares a photo of a tent under pines]
We pitched it at {v} two days ago, and the stars were unreal. = Which park did {who} visit with the family? = Hollow Lake|Cedar Gorge|Mount Orrin|the dunes
A {v} got into our food box, we had to eat crackers. = What animal troubled {who}? = raccoon|fox|badger|goat
My back is done with the ground, I ordered a {v}. = What did {who} buy to sleep better outside? = hammock|cot|roof tent
work
Meetings all day, the usual.|My job eats me alive this week.|The office was empty today.|Work has been okay, thanks for asking.|Is your boss still like that?
I gave notice yesterday, after {v} years. Scary! = How long was {who} with the previous employer? = four|six|nine|eleven
They want me to look after {v} from now on, never did that before. = What new responsibility was {who} given? = the interns|the night shift|payroll|the archive
Passed the {v} exam!! All those evenings paid off. = What qualification did {who} obtain? = welding|notary|bookkeeping|lifeguard
music
Music helps me through the day.|I played for an hour, so good.|That song is stuck in my head.|Which concert was your favourite?|My playlist is a mess, [shares a photo of a record shelf]
Dug out grandpa's {v}, it still has his name inside the case. = What instrument did {who} inherit? = clarinet|mandolin|accordion|trumpet
Saw {v} live on Friday, front row, my ears are still ringing. = Which band did {who} see? = Paper Foxes|The Late Trams|Violet Static|Moth Parade
We rehearse in {v}'s garage every Tuesday, five of us. = With whom does {who} practise? = Bea|Omar|Lin|Tove
health
I try to sleep more.|Doctor says I should walk.|Health comes first!|I feel so much better lately.|Long run this morning, [shares a photo of running shoes]
Turns out I cannot have {v}, my stomach thanks me already. = What is {who} allergic or intolerant to? = gluten|lactose|nuts|shellfish
What calms me down is {v}, twenty minutes before bed. = How does {who} relax in the evening? = knitting|a hot bath|jigsaw puzzles|breathing exercises
The surgery went fine, the {v} is as good as new. = Which part of the body was {who} operated on? = knee|hip|shoulder|left eye
pets
He is asleep on my feet as we speak.|Our pets rule the house.|Dogs are better than people.|Vet again, nothing serious.|So fluffy! [shares a photo of a dog on a sofa]
Meet {v}, she moved in last Friday and owns the couch. = What is {who}'s newest companion called? = Biscuit|Olive|Pixel|Marble
The old cat chewed through {v}, I could scream. = What did {who}'s cat ruin? = the router cable|my headphones|a curtain|the lampshade
We walk with a group from {v} on Sundays, twelve leashes! = Where did {who} meet other owners? = the shelter|the library|church|puppy school
family
The kids are growing too fast.|Family dinner tonight!|My mother says hello.|Family is everything to me.|What a lovely family photo, [shares a photo of people on a porch]
Our eldest starts at {v} in the autumn, I am not ready. = Where will {who}'s child study? = the conservatory|a school in Leeds|the naval academy
My brother called last night: {v} are getting back together. = Which relatives of {who} reconciled? = our parents|he and Ruth|the twins
We lost {v} last week, I keep reaching for the phone. = Whose death does {who} grieve over? = aunt Rosa|my godfather|uncle Ed|grandma
food
I cooked for six, so tired.|That smells amazing!|Recipes are love.|We ate far too much.|Look at this, [shares a photo of a pie]
First prize at the fair, with my {v}! = For what did {who} win an award? = chutney|rye loaf|pear cider|goat cheese
There is a tiny {v} place behind the station, we go each month. = What is {who}'s favourite restaurant? = Nepali|Basque|Persian|Cuban
No meat for me since {v}, and I do not even miss it. = How long has {who} been a vegetarian? = New Year|my birthday|Easter
helping
Small things matter.|Helping others gives me hope.|The community is wonderful.|I am so proud of everyone there.|What a turnout! [shares a photo of a crowd with signs]
Spent Saturday handing out {v} with the others, my arms hurt. = What did {who} distribute as a volunteer? = blankets|soup|leaflets|school bags
I spoke to the {v} about it, my knees were shaking! = In front of whom did {who} give a speech? = city council|whole school|parish|union
They made me {v} of the group, can you believe it? = What role does {who} have in the organisation? = treasurer|chair|spokesperson
travel
I need a holiday.|Packing is the worst.|The sea calls me.|Where would you go next?|What a view! [shares a photo of a coast]
Landed an hour ago, {v} in the rain is still {v}. = To which city did {who} fly? = Porto|Naples|Riga|Oslo
I keep a {v} from every place, the shelf is full. = What does {who} collect as a souvenir? = pebble|spoon|bus ticket|fridge magnet
Lost my {v} at the airport, they found it two days later. = What went missing for {who} on the journey? = suitcase|passport|glasses|guitar
""".strip().splitlines()
_SMALL = (
    "Hey {other}! How are you?|Wow, that's great!|Thanks, {other}. That means a lot.|No way! Tell me more.|Haha, true.|"
    "I totally get that.|You're so right, {other}.|Sounds fun! What else is new?|Take care, talk soon!|Aww, so sweet.|"
    "Yeah, it's been a ride.|How did that feel?|Good luck with it!|That's awesome, keep it up!|Same here, honestly.|"
    "I'm glad to have you, {other}.|Can't wait to hear more."
).split("|")


def messages(seed: int, days: int = 190) -> Talk:
    """Return terse chats of two people in dated sessions, of which each has two topics."""
    dice = random.Random(seed)
    names = dice.sample(NAMES, 2)
    topics = [_TOPICS[at : at + 5] for at in range(0, len(_TOPICS), 5)]
    told = [(who, topic, fact) for topic in topics for fact in topic[2:] for who in (0, 1) if dice.random() < 0.8]
    dice.shuffle(told)
    talk, lines = Talk(), dict[tuple[int, str], str]()
    start, sessions, who = datetime.now(UTC) - timedelta(days=days), 20, 0
    for number in range(sessions):
        at = start + timedelta(days=days * number // sessions, minutes=dice.randint(0, 600))
        plan = told[len(told) * number // sessions : len(told) * (number + 1) // sessions]
        idle = dice.sample(topics, 2)
        for turn in range(28 + number % 2 * 4):
            chat = [*dice.sample(_SMALL, dice.randint(1, 3)), *dice.sample(dice.choice(idle)[1].split("|"), 2)]
            spoken = " ".join(dice.sample(chat, dice.randint(1, len(chat))))
            if plan and turn > 2 and plan[0][0] == who and dice.random() < 0.5:
                _, topic, fact = plan.pop(0)
                line, question, values = fact.split(" = ")
                spoken = line.format(v=(value := dice.choice(values.split("|"))), d=value)
                lines[who, fact] = spoken
                talk.questions.append(Question(ONE, question.format(who=names[who]), (spoken,)))
                asked = f"What did {names[who]} tell about {topic[0]} in {MONTHS[at.month - 1]}?"
                talk.questions.append(Question(TIME, asked, (spoken,)))
                spoken = " ".join([spoken, *dice.sample(chat, dice.randint(0, 2))])
            text = f"{names[who]}: {spoken.format(other=names[1 - who])}"
            talk.messages.append(Said(who == 0, text, at + timedelta(minutes=turn)))
            who = 1 - who
    for fact in dict.fromkeys(fact for _, _, fact in told):
        question = fact.split(" = ")[1]
        if (0, fact) in lines and (1, fact) in lines:
            asked = question.format(who=" and ".join(names))
            talk.questions.append(Question(TWO, asked, (lines[0, fact], lines[1, fact])))
        for one in (0, 1):
            if (one, fact) not in lines and (1 - one, fact) in lines:
                talk.questions.append(Question(NEVER, question.format(who=names[one]), (), (lines[1 - one, fact],)))
    return talk
