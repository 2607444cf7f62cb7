"""Tasks in the office, made by seed: what is asked, and one right way to do it.

Knows the office's tools and reads its database as a person with all keys would; not MCP, not agents. Invariant: a plan
calls only what it could know from the question and from what its earlier calls showed; it has 2 to 8 calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from .state import CUSTOMERS, DAYS, HOURS, PEOPLE, TITLES, Office

CALLS = range(2, 9)
"""How many calls a task takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One call of a plan."""

    thought: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A task: the question, its plan, and the answer in the end."""

    question: str
    plan: tuple[Step, ...]
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A row of the calendar."""

    id: int
    day: str
    hour: int
    title: str
    names: tuple[str, ...]


def step(name: str, thought: str, /, **arguments: Any) -> Step:
    return Step(thought=thought, name=name, arguments=arguments)


def goal(kind: str, seed: str) -> tuple[str, Goal]:
    """The seed of an office and a task of this kind in it: the first office of this seed that offers one."""
    for again in count():
        place = f"{seed}.{again}"
        office = Office(place)
        try:
            found = KINDS[kind](office, Random(f"{kind} {place}"))
        finally:
            office.close()
        if found is not None and len(found.plan) in CALLS:
            return place, found
    raise AssertionError  # count() has no end


def mail_of(name: str) -> str:
    domain = "office" if name in PEOPLE else name.lower()
    return f"{name.lower()}@{domain}.example"


def events(office: Office, day: str | None = None) -> list[Event]:
    rows = office._rows("SELECT id, day, hour, title FROM events ORDER BY day, hour, id")
    every = [Event(id=i, day=d, hour=hour, title=title, names=tuple(office._with(i))) for i, d, hour, title in rows]
    return [event for event in every if day is None or event.day == day]


def first_free(office: Office, day: str, names: tuple[str, ...], after: int) -> int | None:
    busy = {event.hour for event in events(office, day) if set(event.names) & set(names)}
    return next((hour for hour in HOURS if hour > after and hour not in busy), None)


def tell(names: tuple[str, ...], subject: str, body: str) -> list[Step]:
    """Find each address and write."""
    steps = []
    for name in names:
        steps.append(step("find_person", f"I need the address of {name}.", name=name))
        steps.append(step("send_mail", f"I write to {name}.", to=mail_of(name), subject=subject, body=body))
    return steps


def count_meetings(office: Office, rng: Random) -> Goal:
    first, length = rng.randrange(3), rng.randint(2, 3)
    days, name = DAYS[first : first + length], rng.choice(PEOPLE)
    number = sum(name in event.names for event in events(office) if event.day in days)
    return Goal(
        question=f"How many meetings does {name} have from {days[0]} to {days[-1]}? Answer with the number.",
        plan=tuple(step("list_events", f"I look at {day}.", day=day) for day in days),
        answer=str(number),
    )


def largest(numbers: Mapping[str, int]) -> str | None:
    """Whose number is the largest, or None where several share it."""
    most = max(numbers.values())
    best = [name for name, number in numbers.items() if number == most]
    return best[0] if len(best) == 1 else None


def busiest_day(office: Office, rng: Random) -> Goal | None:
    first, length = rng.randrange(2), rng.randint(3, 4)
    days = DAYS[first : first + length]
    numbers = {day: len(events(office, day)) for day in days}
    best = largest(numbers)
    if best is None:
        return None
    return Goal(
        question=f"Which day from {days[0]} to {days[-1]} has the most meetings? Answer with the day.",
        plan=tuple(step("list_events", f"I look at {day}.", day=day) for day in days),
        answer=best,
    )


def book_meeting(office: Office, rng: Random) -> Goal | None:
    day, title = rng.choice(DAYS), rng.choice(TITLES)
    names = tuple(sorted(rng.sample(PEOPLE, k=2)))
    hour = first_free(office, day, names, HOURS[0] - 1)
    if hour is None:
        return None
    return Goal(
        question=f"Book the meeting {title} on {day} for {names[0]} and {names[1]}, at the first hour from 9 on when "
        "both are free. Answer with the hour.",
        plan=(
            step("list_events", "I look when they are busy.", day=day),
            step("create_event", "That hour is free for both.", day=day, hour=hour, title=title, attendees=list(names)),
        ),
        answer=str(hour),
    )


def move_meeting(office: Office, rng: Random) -> Goal | None:
    day = rng.choice(DAYS)
    event = rng.choice(events(office, day))
    hour = first_free(office, day, event.names, event.hour)
    if hour is None or sum(other.title == event.title for other in events(office, day)) > 1:
        return None
    return Goal(
        question=f"Move the meeting {event.title} on {day} to the next hour when all who attend are free, and mail "
        "each of them, with the subject Moved and the new hour as the body, such as 11. Answer with the hour.",
        plan=(
            step("list_events", "I look for the meeting.", day=day),
            step("move_event", "The next free hour.", event=event.id, day=day, hour=hour),
            *tell(event.names, "Moved", str(hour)),
        ),
        answer=str(hour),
    )


def call_off(office: Office, rng: Random) -> Goal | None:
    day = rng.choice(DAYS)
    event = rng.choice(events(office, day))
    if sum(other.title == event.title for other in events(office, day)) > 1:
        return None
    return Goal(
        question=f"Cancel the meeting {event.title} on {day}, and mail each who attends, with the subject Cancelled "
        "and the title of the meeting as the body. Answer done.",
        plan=(
            step("list_events", "I look for the meeting.", day=day),
            step("cancel_event", "I cancel it.", event=event.id),
            *tell(event.names, "Cancelled", event.title),
        ),
        answer="done",
    )


def order_total(office: Office, rng: Random) -> Goal | None:
    customer = rng.choice(CUSTOMERS)
    rows = office._rows(
        "SELECT product, quantity, price FROM orders JOIN products ON name = product WHERE customer = ? "
        "AND status = 'open' ORDER BY id",
        customer,
    )
    if not rows:
        return None
    products = list(dict.fromkeys(product for product, _, _ in rows))
    return Goal(
        question=f"What do the open orders of {customer} come to in euros? Answer with the number.",
        plan=(
            step("list_orders", f"I look at the orders of {customer}.", customer=customer),
            *(step("find_product", f"I need the price of a {product}.", name=product) for product in products),
        ),
        answer=str(sum(quantity * price for _, quantity, price in rows)),
    )


def cancel_order(office: Office, rng: Random) -> Goal | None:
    rows = office._rows("SELECT id, sender, body FROM mails WHERE subject = 'Cancel' ORDER BY id")
    if not rows:
        return None
    mail, sender, body = rng.choice(rows)
    order = int(body.split("order ")[1].split(",")[0])
    return Goal(
        question=f"Do what {sender} asks for by mail, and then mail {sender}, with the subject Order and the number of "
        "the order as the body. Answer with that number.",
        plan=(
            step("search_mails", f"I look for mail from {sender}.", text=sender),
            step("read_mail", "I read it.", mail=mail),
            step("set_order_status", "I cancel the order.", order=order, status="cancelled"),
            *tell((sender,), "Order", str(order)),
        ),
        answer=str(order),
    )


def refund(office: Office, rng: Random) -> Goal | None:
    customer = rng.choice(CUSTOMERS)
    rows = office._rows("SELECT id FROM orders WHERE customer = ? AND status = 'delivered' ORDER BY id", customer)
    if not rows:
        return None
    order = rows[-1][0]
    return Goal(
        question=f"Refund the latest delivered order of {customer}, and mail {customer}, with the subject Refund and "
        "the number of the order as the body. Answer with that number.",
        plan=(
            step("list_orders", f"I look at the orders of {customer}.", customer=customer),
            step("set_order_status", "The last delivered one.", order=order, status="refunded"),
            *tell((customer,), "Refund", str(order)),
        ),
        answer=str(order),
    )


def restock(office: Office, rng: Random) -> Goal | None:
    content = office._rows("SELECT content FROM files WHERE path = 'stock/minimum.txt'")[0][0]
    least = {line.split()[0]: int(line.split()[1]) for line in content.splitlines()}
    stock = dict(office._rows("SELECT name, stock FROM products"))
    short = sorted(name for name, minimum in least.items() if stock[name] < minimum)
    if not short:
        return None
    return Goal(
        question="The file stock/minimum.txt says how many of some products there must be. Write the names of those of "
        "which there are fewer into stock/order.txt, in the order of the alphabet, with one space between them. Answer "
        "with how many names there are.",
        plan=(
            step("read_file", "I read what must be there.", path="stock/minimum.txt"),
            *(step("find_product", f"How many of {name} are there?", name=name) for name in least),
            step("write_file", "These are short.", path="stock/order.txt", content=" ".join(short)),
        ),
        answer=str(len(short)),
    )


def sum_reports(office: Office, rng: Random) -> Goal:
    rows = office._rows("SELECT path, content FROM files WHERE path LIKE 'reports/%' ORDER BY path")
    total = sum(int(content.split()[0]) for _, content in rows)
    return Goal(
        question="How many visitors are in all reports together? Write the number into total.txt, and answer with it.",
        plan=(
            step("list_files", "I look which reports there are.", folder="reports"),
            *(step("read_file", f"I read {path}.", path=path) for path, _ in rows),
            step("write_file", "I write the sum.", path="total.txt", content=str(total)),
        ),
        answer=str(total),
    )


def send_notes(office: Office, rng: Random) -> Goal:
    mail, sender, body = office._rows("SELECT id, sender, body FROM mails WHERE subject = 'Notes'")[0]
    path = body.split("what is in ")[1].rstrip(".")
    content = office._rows("SELECT content FROM files WHERE path = ?", path)[0][0]
    return Goal(
        question="Somebody asks for notes by mail, with the subject Notes. Mail them the content of that file, with "
        "the subject Notes. Answer with the name of who asked.",
        plan=(
            step("search_mails", "I look for the mail.", text="Notes"),
            step("read_mail", "I read it.", mail=mail),
            step("read_file", "I read the file.", path=path),
            *tell((sender,), "Notes", content),
        ),
        answer=sender,
    )


def most_orders(office: Office, rng: Random) -> Goal | None:
    names = sorted(rng.sample(CUSTOMERS, k=rng.randint(2, 4)))
    numbers = {name: office._rows("SELECT count(*) FROM orders WHERE customer = ?", name)[0][0] for name in names}
    best = largest(numbers)
    if best is None:
        return None
    return Goal(
        question=f"Who of {', '.join(names)} has the most orders? Write the name into best.txt, and answer with it.",
        plan=(
            *(step("list_orders", f"I look at the orders of {name}.", customer=name) for name in names),
            step("write_file", "I write the name.", path="best.txt", content=best),
        ),
        answer=best,
    )


KINDS: Mapping[str, Callable[[Office, Random], Goal | None]] = {
    "count_meetings": count_meetings,
    "busiest_day": busiest_day,
    "book_meeting": book_meeting,
    "move_meeting": move_meeting,
    "call_off": call_off,
    "order_total": order_total,
    "cancel_order": cancel_order,
    "refund": refund,
    "restock": restock,
    "sum_reports": sum_reports,
    "send_notes": send_notes,
    "most_orders": most_orders,
}
"""Kinds of tasks."""
