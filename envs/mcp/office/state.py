"""What there is in the office: people, a calendar, mail, files, and a shop's orders, in one SQLite database in memory.

Each public method is one tool: text and numbers in, text out, `OfficeError` for what cannot be done. Knows nothing of
MCP or of tasks. Invariant: the same seed gives the same office, and every change goes through a tool.
"""

from __future__ import annotations

import sqlite3
import threading
from random import Random
from typing import Any

PEOPLE = ("Ada", "Ben", "Chen", "Dina", "Emil", "Fatima", "Goran", "Hana")
CUSTOMERS = ("Alder", "Birch", "Cedar", "Hazel", "Maple", "Rowan")
DAYS = ("2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05", "2026-03-06")
TITLES = ("Budget", "Review", "Planning", "Interview", "Training", "Safety", "Design", "Launch")
PRODUCTS = ("lamp", "desk", "chair", "shelf", "clock", "stool", "mirror", "basket")
STATUSES = ("open", "sent", "delivered", "cancelled", "refunded")
HOURS = range(9, 17)

SCHEMA = """
CREATE TABLE people (name TEXT PRIMARY KEY, mail TEXT, role TEXT);
CREATE TABLE events (id INTEGER PRIMARY KEY, day TEXT, hour INTEGER, title TEXT);
CREATE TABLE attendees (event INTEGER, name TEXT);
CREATE TABLE mails (id INTEGER PRIMARY KEY, sender TEXT, recipient TEXT, subject TEXT, body TEXT, ours INTEGER);
CREATE TABLE files (path TEXT PRIMARY KEY, content TEXT);
CREATE TABLE products (name TEXT PRIMARY KEY, price INTEGER, stock INTEGER);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, product TEXT, quantity INTEGER, status TEXT);
"""


class OfficeError(Exception):
    """What a tool says when it cannot do what was asked."""


class Office:
    """One office. Its tools may be called from any thread, one at a time."""

    def __init__(self, seed: str) -> None:
        self._lock = threading.RLock()
        self._db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._db.executescript(SCHEMA)
        self._furnish(Random(f"office {seed}"))

    def close(self) -> None:
        self._db.close()

    def snapshot(self) -> dict[str, list[tuple[Any, ...]]]:
        """All that a task can be about, in an order that does not depend on how it came about."""
        queries = {
            "events": "SELECT day, hour, title, (SELECT group_concat(name, ', ') FROM (SELECT name FROM attendees "
            "WHERE event = events.id ORDER BY name)) FROM events ORDER BY 1, 2, 3, 4",
            "mails": "SELECT recipient, trim(subject), trim(body) FROM mails WHERE ours ORDER BY 1, 2, 3",
            "files": "SELECT path, trim(content, ' ' || char(10)) FROM files ORDER BY 1",
            "products": "SELECT name, price, stock FROM products ORDER BY 1",
            "orders": "SELECT id, customer, product, quantity, status FROM orders ORDER BY 1",
        }
        return {name: self._rows(query) for name, query in queries.items()}

    # -- tools --------------------------------------------------------------------------------------------------

    def find_person(self, name: str) -> str:
        """Mail address and role of a colleague or customer."""
        rows = self._rows("SELECT name, mail, role FROM people WHERE name = ? COLLATE NOCASE", name.strip())
        return _lines((f"{n}: {mail}, {role}" for n, mail, role in rows), f"nobody is called {name}")

    def list_events(self, day: str) -> str:
        """Meetings of one day, such as 2026-03-02. Each lasts one hour."""
        rows = self._rows("SELECT id, hour, title FROM events WHERE day = ? ORDER BY hour, id", _day(day))
        said = (f"event {i}, {hour:02}:00: {title}, with {', '.join(self._with(i))}" for i, hour, title in rows)
        return _lines(said, f"no meetings on {day}", fail=False)

    def create_event(self, day: str, hour: int, title: str, attendees: list[str]) -> str:
        """A new meeting of one hour; hour is 9 to 16."""
        self._free(_day(day), _hour(hour), [self._name(name) for name in attendees], None)
        if not attendees or not title.strip():
            raise OfficeError("a meeting needs a title and attendees")
        with self._lock:
            cursor = self._db.execute("INSERT INTO events (day, hour, title) VALUES (?, ?, ?)", (day, hour, title))
            event = cursor.lastrowid
            names = sorted({self._name(name) for name in attendees})
            self._db.executemany("INSERT INTO attendees VALUES (?, ?)", [(event, name) for name in names])
        return f"event {event} made on {day} at {hour:02}:00"

    def move_event(self, event: int, day: str, hour: int) -> str:
        """Move a meeting to another day or hour."""
        self._free(_day(day), _hour(hour), self._with(self._event(event)), event)
        self._do("UPDATE events SET day = ?, hour = ? WHERE id = ?", day, hour, event)
        return f"event {event} moved to {day} at {hour:02}:00"

    def cancel_event(self, event: int) -> str:
        """Take a meeting out of the calendar."""
        self._do("DELETE FROM attendees WHERE event = ?", self._event(event))
        self._do("DELETE FROM events WHERE id = ?", event)
        return f"event {event} cancelled"

    def search_mails(self, text: str) -> str:
        """Received mails whose sender, subject or body holds the text."""
        rows = self._rows(
            "SELECT id, sender, subject FROM mails WHERE NOT ours AND "
            "instr(lower(sender || ' ' || subject || ' ' || body), lower(?)) ORDER BY id",
            text.strip(),
        )
        return _lines((f"mail {i} from {sender}: {subject}" for i, sender, subject in rows), "no such mail", fail=False)

    def read_mail(self, mail: int) -> str:
        """One received mail."""
        rows = self._rows("SELECT sender, subject, body FROM mails WHERE id = ? AND NOT ours", mail)
        return _lines(
            (f"from {sender}, {subject}: {body}" for sender, subject, body in rows), f"there is no mail {mail}"
        )

    def send_mail(self, to: str, subject: str, body: str) -> str:
        """Send a mail; `to` is a mail address."""
        if not self._rows("SELECT 1 FROM people WHERE mail = ? COLLATE NOCASE", to.strip()):
            raise OfficeError(f"no such mail address: {to}")
        self._do("INSERT INTO mails VALUES (NULL, 'me', ?, ?, ?, 1)", to.strip().lower(), subject, body)
        return f"mail sent to {to}"

    def list_files(self, folder: str) -> str:
        """Paths of the files in a folder."""
        rows = self._rows("SELECT path FROM files WHERE instr(path, ? || '/') = 1 ORDER BY path", folder.strip("/ "))
        return _lines((path for (path,) in rows), f"no files in {folder}", fail=False)

    def read_file(self, path: str) -> str:
        """The content of a file."""
        rows = self._rows("SELECT content FROM files WHERE path = ?", path.strip("/ "))
        return _lines((content for (content,) in rows), f"there is no file {path}")

    def write_file(self, path: str, content: str) -> str:
        """Write a file, over an old one where there is one."""
        self._do("INSERT OR REPLACE INTO files VALUES (?, ?)", path.strip("/ "), content)
        return f"{path} written"

    def find_product(self, name: str) -> str:
        """Price in euros and stock of a product of the shop."""
        rows = self._rows("SELECT name, price, stock FROM products WHERE name = ? COLLATE NOCASE", name.strip())
        return _lines((f"{n}: {price} euros, {stock} in stock" for n, price, stock in rows), f"there is no {name}")

    def list_orders(self, customer: str) -> str:
        """All orders of one customer, oldest first."""
        rows = self._rows(
            "SELECT id, quantity, product, status FROM orders WHERE customer = ? COLLATE NOCASE ORDER BY id",
            customer.strip(),
        )
        said = (f"order {i}: {quantity} x {product}, {status}" for i, quantity, product, status in rows)
        return _lines(said, f"{customer} has no orders", fail=False)

    def set_order_status(self, order: int, status: str) -> str:
        """Set an order to open, sent, delivered, cancelled or refunded."""
        if status not in STATUSES:
            raise OfficeError(f"a status is one of {', '.join(STATUSES)}")
        if not self._rows("SELECT 1 FROM orders WHERE id = ?", order):
            raise OfficeError(f"there is no order {order}")
        self._do("UPDATE orders SET status = ? WHERE id = ?", status, order)
        return f"order {order} is {status}"

    # -- inside -------------------------------------------------------------------------------------------------

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._db.execute(query, values).fetchall()
        except (sqlite3.Error, OverflowError) as error:  # a number too large for a column, say
            raise OfficeError(str(error)) from None

    def _do(self, query: str, *values: object) -> None:
        self._rows(query, *values)

    def _with(self, event: int) -> list[str]:
        return [name for (name,) in self._rows("SELECT name FROM attendees WHERE event = ? ORDER BY name", event)]

    def _event(self, event: int) -> int:
        if not self._rows("SELECT 1 FROM events WHERE id = ?", event):
            raise OfficeError(f"there is no event {event}")
        return event

    def _name(self, name: str) -> str:
        rows = self._rows("SELECT name FROM people WHERE name = ? COLLATE NOCASE", name.strip())
        if not rows:
            raise OfficeError(f"nobody is called {name}")
        return str(rows[0][0])

    def _free(self, day: str, hour: int, names: list[str], event: int | None) -> None:
        for name in names:
            if self._rows(
                "SELECT 1 FROM events JOIN attendees ON event = id "
                "WHERE day = ? AND hour = ? AND name = ? AND id IS NOT ?",
                day,
                hour,
                name,
                event,
            ):
                raise OfficeError(f"{name} is not free on {day} at {hour:02}:00")

    def _furnish(self, rng: Random) -> None:
        insert = self._db.executemany
        roles = rng.choices(("clerk", "manager", "engineer", "buyer"), k=len(PEOPLE))
        insert(
            "INSERT INTO people VALUES (?, ?, ?)",
            [(name, f"{name.lower()}@office.example", role) for name, role in zip(PEOPLE, roles, strict=True)]
            + [(name, f"{name.lower()}@{name.lower()}.example", "customer") for name in CUSTOMERS],
        )
        for day in DAYS:
            for hour in sorted(rng.sample(HOURS, k=rng.randint(1, 5))):
                title = rng.choice(TITLES)
                event = self._db.execute("INSERT INTO events (day, hour, title) VALUES (?, ?, ?)", (day, hour, title))
                names = sorted(rng.sample(PEOPLE, k=rng.randint(1, 3)))
                insert("INSERT INTO attendees VALUES (?, ?)", [(event.lastrowid, name) for name in names])
        prices = rng.sample(range(5, 90), k=len(PRODUCTS))
        insert(
            "INSERT INTO products VALUES (?, ?, ?)",
            [(name, price, rng.randint(0, 20)) for name, price in zip(PRODUCTS, prices, strict=True)],
        )
        for number in range(101, 101 + 3 * len(CUSTOMERS)):
            status = rng.choice(STATUSES[:3])
            values = (number, rng.choice(CUSTOMERS), rng.choice(PRODUCTS), rng.randint(1, 6), status)
            self._db.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", values)
        wanted = rng.sample(PRODUCTS, k=rng.randint(2, 4))
        insert(
            "INSERT INTO files VALUES (?, ?)",
            [("stock/minimum.txt", "\n".join(f"{name} {rng.randint(4, 16)}" for name in wanted))]
            + [(f"reports/{title.lower()}.txt", f"{rng.randint(10, 99)} visitors") for title in rng.sample(TITLES, k=3)]
            + [
                (f"notes/{name.lower()}.txt", f"Room {rng.randint(1, 9)} needs a {rng.choice(PRODUCTS)}.")
                for name in PEOPLE
            ],
        )
        senders = rng.sample(CUSTOMERS, k=3)
        for sender in senders:
            self._db.execute(
                "INSERT INTO mails VALUES (NULL, ?, 'me', 'Question', ?, 0)",
                (sender, f"Do you have a {rng.choice(PRODUCTS)} in blue?"),
            )
        for sender in rng.sample([name for name in CUSTOMERS if name not in senders], k=2):
            orders = [i for (i,) in self._rows("SELECT id FROM orders WHERE customer = ? AND status = 'open'", sender)]
            if orders:
                body = f"Please cancel order {rng.choice(orders)}, we do not need it any more."
                self._db.execute("INSERT INTO mails VALUES (NULL, ?, 'me', 'Cancel', ?, 0)", (sender, body))
        asking, other = rng.sample(PEOPLE, k=2)
        body = f"Please send me what is in notes/{other.lower()}.txt."
        self._db.execute("INSERT INTO mails VALUES (NULL, ?, 'me', 'Notes', ?, 0)", (asking, body))


TOOLS = (
    "find_person",
    "list_events",
    "create_event",
    "move_event",
    "cancel_event",
    "search_mails",
    "read_mail",
    "send_mail",
    "list_files",
    "read_file",
    "write_file",
    "find_product",
    "list_orders",
    "set_order_status",
)
"""Methods of an office that are tools."""


def _lines(rows: Any, none: str, *, fail: bool = True) -> str:
    said = "\n".join(rows)
    if said:
        return said
    if fail:
        raise OfficeError(none)
    return none


def _day(day: str) -> str:
    if day not in DAYS:
        raise OfficeError(f"the calendar has the days {DAYS[0]} to {DAYS[-1]}")
    return day


def _hour(hour: int) -> int:
    if hour not in HOURS:
        raise OfficeError(f"meetings begin at {HOURS[0]} to {HOURS[-1]}")
    return hour
