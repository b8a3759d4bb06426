"""English words, grouped by subject, so that a sentence made of them speaks of one thing.

A verb is its base form where it is regular, else base:past:-ing form. An object takes any verb of its subject.
"""

from __future__ import annotations

from benchmarks.subject import Subject


def _words(text: str) -> list[str]:
    return text.split()


def _subject(people: str, verbs: str, things: str, adjectives: str, places: str) -> Subject:
    return Subject(
        *([item.strip() for item in part.split(",")] for part in (people, verbs, things, adjectives, places))
    )


SUBJECTS = [
    _subject(
        "chef, baker, waiter, cook, butcher, grocer, food critic, pastry apprentice",
        "taste, season, order, prepare, serve, burn, slice, bring:brought:bringing, recommend, refuse",
        "soup, noodles, loaf of rye bread, grilled salmon, lentil stew, apple tart, mushroom risotto, roast chicken,"
        " bowl of rice, plate of dumplings, cheese omelette, tomato salad, pot of coffee, lemon cake, garlic sauce",
        "spicy, fresh, salty, homemade, bitter, overcooked, fragrant, cheap, vegetarian, lukewarm",
        "in the kitchen, at the corner bakery, in a crowded restaurant, at the market hall, behind the counter,"
        " on the terrace",
    ),
    _subject(
        "nurse, surgeon, pharmacist, patient, dentist, paramedic, physiotherapist, midwife, radiologist",
        "examine, treat, prescribe, monitor, diagnose, report, describe, underestimate, record, explain",
        "fever, broken wrist, allergic reaction, blood sample, vaccine, painkiller, heart rhythm, chronic cough,"
        " infection, X-ray image, wound, sleeping disorder, blood pressure, side effect",
        "severe, mild, sudden, unusual, chronic, harmless, contagious, painful, rare",
        "in the emergency room, at the clinic, on the third ward, in the waiting area, at the pharmacy, by the bedside",
    ),
    _subject(
        "teacher, pupil, lecturer, student, librarian, headmaster, tutor, exchange student, examiner",
        "study, explain, copy, correct, memorise, summarise, discuss, forget:forgot:forgetting, hand out:handed out:"
        "handing out, mark",
        "essay, grammar rule, geometry problem, chapter on the French Revolution, vocabulary list, lab report, poem,"
        " timetable, textbook, multiple-choice test, thesis, map of Africa, history lesson, spelling mistake",
        "difficult, boring, short, optional, final, confusing, well-written, late, anonymous",
        "in the classroom, at the library, during the seminar, in the lecture hall, on campus, in the schoolyard",
    ),
    _subject(
        "manager, accountant, secretary, intern, consultant, sales representative, recruiter, team leader, auditor",
        "approve, postpone, cancel, present, review, sign, negotiate, reject, archive, rewrite:rewrote:rewriting",
        "quarterly report, contract, budget, marketing plan, invoice, job application, meeting, customer survey,"
        " travel request, pay rise, press release, expense claim, strategy paper, supplier agreement",
        "urgent, annual, incomplete, confidential, ambitious, unpaid, revised, internal, controversial",
        "at headquarters, in the meeting room, on the fourth floor, during the conference call, at the trade fair,"
        " in the open-plan office",
    ),
    _subject(
        "physicist, chemist, biologist, astronomer, lab technician, geologist, statistician, doctoral student",
        "measure, discover, observe, publish, simulate, repeat, analyse, question, confirm, predict",
        "experiment, distant galaxy, enzyme, chemical reaction, fossil, gene sequence, magnetic field, hypothesis,"
        " water sample, neutron star, crystal structure, data set, bacterial culture, volcanic rock",
        "unexpected, precise, tiny, radioactive, statistical, ancient, unstable, replicated, theoretical",
        "in the laboratory, at the observatory, on an expedition, in the clean room, at the institute, in the journal",
    ),
    _subject(
        "tourist, flight attendant, bus driver, pilot, hotel guest, backpacker, tour guide, conductor, commuter",
        "book, miss, photograph, catch:caught:catching, visit, explore, reserve, board, recommend, cross",
        "early train, night flight, mountain trail, harbour ferry, old cathedral, double room, island, rental car,"
        " suitcase, walking tour, border crossing, window seat, return ticket, hiking map",
        "crowded, cancelled, scenic, delayed, remote, overpriced, picturesque, foggy, last-minute",
        "at the airport, on platform nine, in the old town, at the hostel, near the coast, on the motorway",
    ),
    _subject(
        "goalkeeper, coach, swimmer, referee, cyclist, marathon runner, striker, gymnast, fan, tennis player",
        "win:won:winning, lose:lost:losing, watch, start, celebrate, dominate, interrupt, decide, dread, "
        "lead:led:leading",
        "match, penalty shoot-out, relay race, semi-final, training session, second half, mountain stage, tournament,"
        " friendly, tie-break, medal ceremony, hurdles final, qualifying round, derby",
        "exciting, unfair, decisive, rainy, legendary, disappointing, one-sided, sold-out, historic",
        "at the stadium, in the gym, on the track, in extra time, at the Olympics, on the training ground",
    ),
    _subject(
        "violinist, painter, sculptor, film director, drummer, novelist, choir, actress, photographer, pianist",
        "perform, rehearse, exhibit, compose, record, restore, admire, sell:sold:selling, interrupt, finish",
        "string quartet, portrait, symphony, bronze statue, short film, jazz album, watercolour, ballad, screenplay,"
        " folk song, black-and-white photograph, opening scene, detective novel, piano concerto",
        "melancholy, unfinished, famous, abstract, experimental, forgotten, loud, colourful, minimalist",
        "at the gallery, on stage, in the studio, in the concert hall, at the film festival, in the museum",
    ),
    _subject(
        "farmer, gardener, beekeeper, shepherd, botanist, forester, fruit picker, neighbour, vet",
        "plant, water, harvest, prune, feed:fed:feeding, sell:sold:selling, protect, grow:grew:growing, fence in:"
        "fenced in:fencing in, inspect",
        "tomatoes, apple trees, wheat field, flock of sheep, roses, vegetable patch, pumpkins, beehives, herbs,"
        " young calves, potato crop, vineyard, lavender hedge, greenhouse seedlings",
        "ripe, organic, thirsty, healthy, wild, frost-damaged, neglected, sunny, prize-winning",
        "on the farm, in the orchard, behind the barn, in the greenhouse, beside the stream, on the allotment",
    ),
    _subject(
        "programmer, network engineer, tester, designer, system administrator, data scientist, hacker, support agent",
        "debug, deploy, install, update, rewrite:rewrote:rewriting, encrypt, test, delete, restart, document",
        "database, login page, mobile app, search engine, backup script, web server, neural network, graphics driver,"
        " user interface, password manager, cloud cluster, spam filter, file parser, chat bot, firewall rule",
        "slow, outdated, open-source, reliable, vulnerable, experimental, encrypted, buggy, lightweight",
        "in the data centre, on the test system, overnight, in production, at the hackathon, over a slow connection",
    ),
    _subject(
        "lawyer, judge, journalist, senator, police officer, witness, mayor, spokesperson, protester, editor",
        "criticise, investigate, deny, publish, oppose, defend, announce, overturn, debate, leak",
        "verdict, tax reform, election result, corruption scandal, court ruling, housing bill, burglary, interview,"
        " peace treaty, immigration law, petition, secret memo, press conference, budget cut",
        "alleged, unpopular, local, unanimous, shocking, political, temporary, landmark, unconfirmed",
        "in parliament, at the police station, in court, on the front page, at the town hall, during the hearing",
    ),
    _subject(
        "fisherman, sailor, lighthouse keeper, meteorologist, diver, harbour master, marine biologist, captain",
        "spot, survive, track, photograph, forecast:forecast:forecasting, avoid, chase, describe, fear, report",
        "thunderstorm, whale, coral reef, hurricane, sailing boat, spring tide, iceberg, dolphin, shipwreck, dense fog,"
        " heavy swell, flock of gulls, cold front, oil slick",
        "violent, approaching, enormous, calm, dangerous, distant, tropical, icy, unpredictable",
        "off the coast, in the harbour, at high tide, on the open sea, near the lighthouse, below deck",
    ),
    _subject(
        "landlord, plumber, carpenter, tenant, electrician, painter, roofer, caretaker, grandmother, flatmate",
        "repair, paint, rent, clean, replace, move, sell:sold:selling, build:built:building, measure, insulate",
        "kitchen sink, wooden staircase, leaking pipe, front door, bathroom tiles, old sofa, bookshelf, garden fence,"
        " bedroom window, washing machine, attic, chimney, light switch, garage roof",
        "broken, dusty, second-hand, spacious, noisy, mouldy, brand-new, wobbly, cosy",
        "in the basement, upstairs, in the flat next door, on the balcony, at the weekend, in the hallway",
    ),
    _subject(
        "investor, bank clerk, trader, economist, insurer, shopkeeper, customer, start-up founder, pensioner",
        "buy:bought:buying, sell:sold:selling, invest in, compare, insure, finance, transfer, calculate, "
        "borrow, inherit",
        "shares, savings account, government bonds, mortgage, pension fund, gold coins, start-up, loan, credit card,"
        " exchange rate, insurance policy, dividend, car loan, property portfolio",
        "risky, profitable, long-term, overvalued, stable, worthless, insured, foreign, interest-free",
        "at the bank, on the stock exchange, online, during the crisis, at the auction, before the deadline",
    ),
]
FIRST_NAMES = _words(
    "Alice Amir Anna Arthur Beatrice Ben Brigitte Carlos Chloe Clara Daniel David Diego Elena Emma Erik Fatima "
    "Felix Fiona Frank George Grace Hana Hannah Henry Hugo Ingrid Isaac Ivan Jack James Jasmine Joanna John Julia "
    "Kai Karen Kevin Kofi Laura Leo Lena Liam Linda Lucas Lucy Maria Mark Martha Mehmet Mia Michael Mina Nadia "
    "Nathan Nora Oliver Olga Oscar Patricia Paul Peter Priya Quentin Rachel Rashid Robert Rosa Ruth Samuel Sarah "
    "Simon Sofia Stefan Susan Theo Thomas Tim Ursula Valerie Victor Wendy William Yasmin Yuki Zoe"
)
SURNAMES = _words(
    "Adams Andersen Baker Bauer Bennett Brown Carter Chen Clarke Costa Davies Dubois Evans Fischer Foster Garcia "
    "Gupta Hansen Harris Hill Hughes Ivanov Jackson Johnson Kim Kowalski Lee Lopez Martin Mendes Miller Moore "
    "Morgan Murphy Nakamura Nguyen Okafor Olsen Patel Petrov Reed Rossi Santos Schmidt Silva Singh Smith Taylor "
    "Turner Walker Watson Weber Williams Wilson Wright Young"
)
CITIES = _words(
    "Amsterdam Athens Auckland Bangkok Barcelona Belfast Berlin Bogota Boston Brussels Budapest Busan Cairo "
    "Chicago Copenhagen Dakar Delhi Dublin Edinburgh Florence Geneva Glasgow Hamburg Hanoi Helsinki Istanbul "
    "Jakarta Kyoto Lagos Lima Lisbon Liverpool London Lyon Madrid Manila Marseille Melbourne Milan Montreal "
    "Mumbai Munich Nairobi Naples Osaka Oslo Paris Prague Riga Rome Seoul Shanghai Singapore Stockholm Sydney "
    "Taipei Tokyo Toronto Valencia Vancouver Venice Vienna Warsaw Wellington Zurich"
)
WHEN = [
    "yesterday",
    "last week",
    "this morning",
    "on Monday",
    "on Friday evening",
    "two days ago",
    "in March",
    "last winter",
    "in the summer of 1998",
    "at noon",
    "shortly after midnight",
    "a month ago",
    "on 14 July",
    "in 2021",
    "before dawn",
    "every other Tuesday",
    "for the first time",
    "at a quarter past six",
    "within three hours",
    "just in time",
]
ADVERBS = _words(
    "quietly carefully quickly finally reluctantly already nearly secretly proudly immediately deliberately "
    "eventually hardly often suddenly simply certainly gladly accidentally apparently"
)
OPENERS = [
    "Unfortunately",
    "As far as I know",
    "To be honest",
    "According to the report",
    "In the end",
    "Surprisingly",
    "For once",
    "After a long discussion",
    "Without any warning",
    "Despite the rain",
    "Contrary to expectations",
    "Thanks to a generous donation",
    "As always",
    "By the way",
    "On second thoughts",
    "In my opinion",
    "Luckily",
    "Because of the strike",
    "At first glance",
    "Officially",
]
REASONS = [
    "because there was no time left",
    "although nobody had asked for it",
    "so that everyone could see it",
    "even though it was expensive",
    "since the deadline had passed",
    "before anyone noticed",
    "while the others were still asleep",
    "until the power went out",
    "as soon as the weather improved",
    "and nobody knows why",
    "but it did not help",
    "which surprised everyone",
    "just as we had hoped",
    "if I remember correctly",
    "after what happened last year",
    "in spite of all the warnings",
    "so we had to start again from the beginning",
    "because the instructions were wrong",
    "and that was the end of the story",
    "but the results were better than expected",
]
TAILS = [
    "too",
    "again",
    "instead",
    "as usual",
    "in silence",
    "without help",
    "on purpose",
    "for free",
    "in a hurry",
    "by mistake",
    "once more",
    "with great care",
    "under pressure",
    "out of curiosity",
    "for no obvious reason",
]
# What invented names are made of.
BEGINNINGS = _words(
    "Al Ar Bal Ber Bor Bran Cal Car Cor Dal Del Dor Dun El Er Fal Fen Gal Gar Gol Hal Har Hol Il Jar Jor Kal Kar "
    "Kel Kor Lan Lar Lor Mal Mar Mel Mor Nar Nel Nor Ol Or Pal Par Pel Quar Ral Ros Sal Sar Sel Sol Tal Tar Tel "
    "Tor Ul Val Var Vel Vor Wal Wel Win Yar Zan Zel"
)
MIDDLES = _words(
    "a an ba bi da de di do en ga gi i in ka ki la le li ma mi mo na ne ni o ra re ri ro sa se si ta te ti va vi"
)
ENDINGS = _words(
    "bach beck berg bourne bridge by by-Sea croft dale den don dorf elli enko er escu ford gate ham hausen holm "
    "ic idis ides ier ik ina ini ington is ka kin land ley lund man mann moor mouth nen ney off ora os ossi ov "
    "ova poole quist ridge rod row sen shaw shire ski son stad stein ston strom thorpe ton tree ulos ut vale vik "
    "ville well wick wood worth"
)
MONTHS = _words("January February March April May June July August September October November December")
PREFIXES = _words("semi- un ultra- non- over- pre- quasi- half- post- hyper- anti- pseudo-")
