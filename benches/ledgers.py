"""What a ledger holds, and how large it is, asked beside perdiem."""

import contextlib
import sqlite3
from dataclasses import dataclass

COUNT = "SELECT count(*) FROM entries"
TABLES = "'entries'::regclass, 'accounts'::regclass"


@dataclass
class PostgresLedger:
    """A ledger in a database of PostgreSQL's."""

    postgres: object
    database: str

    @property
    def url(self):
        return self.postgres.url(self.database)

    @property
    def processes(self):
        return {"PostgreSQL": self.postgres.pid}

    def query(self, sql):
        return self.postgres.query(self.database, sql)

    def count(self):
        """How many entries it holds: grants all of them, here."""
        return int(self.query(COUNT))

    def size_bytes(self):
        """Its tables with their indexes."""
        return int(
            self.query(f"SELECT sum(pg_total_relation_size(t)) FROM unnest(ARRAY[{TABLES}]) AS t")
        )

    def wal_bytes(self):
        """How much the cluster has logged, ever."""
        return int(self.query("SELECT pg_current_wal_insert_lsn() - '0/0'"))

    def id(self):
        """The ledger's random id, as it stands in Redis' keys."""
        return self.query("SELECT id FROM ledger").replace("-", "")


@dataclass
class SqliteLedger:
    """A ledger in a file."""

    path: object
    # Perdiem's own is all that there is.
    processes = {}

    @property
    def url(self):
        return f"sqlite:{self.path}"

    def query(self, sql):
        uri = f"file:{self.path}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            return connection.execute(sql).fetchone()[0]

    def count(self):
        return self.query(COUNT)

    def size_bytes(self):
        """All its pages; those of other tables are few."""
        return self.query("PRAGMA page_count") * self.query("PRAGMA page_size")

    def wal_bytes(self):
        """Not known: SQLite begins its log anew, again and again."""
        return None
