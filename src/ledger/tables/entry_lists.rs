//! The statements of lists of entries. The history chooses among them.

use crate::query::Texts;

// Each list chooses entries first: after ($1, $2) and up to ($3, $4), at most $5, of the policy $6, of the kinds
// from $7 to $8, of the key $9, that count from $10 up to $11, with the metadata $12 and $13, unless $15 of the
// accounts $14, and, unless $16 is 0, with one of these flags. Then it reads what belongs to them. `policy_id + 0` keeps
// PostgreSQL from reading the whole index of a policy beside the places.

/// The list of the entries among `$found` that fit the filter, on PostgreSQL.
macro_rules! postgres_list {
    ($found:literal) => {
        concat!(
            "SELECT e.*, d.held_until, d.made_by, d.reason, d.per, d.bundle, p.name AS policy,
                a.subject, k.id AS made_by_key, k.name AS made_by_name
            FROM (
                SELECT * FROM ",
            $found,
            "
                WHERE xact >= $1 AND (xact, id) > ($1, $2)
                    AND xact <= $3 AND (xact, id) <= ($3, $4)
                    AND ($6 IS NULL OR policy_id + 0 = $6) AND kind BETWEEN $7 AND $8
                    AND ($9 IS NULL OR claimed_by = $9) AND ($16 = 0 OR flags & $16 <> 0)
                    AND counted_id >= $10 AND counted_id < $11
                    AND ($15 OR account = ANY($14))
                    AND ($12 IS NULL OR CASE
                        WHEN json_typeof(metadata::json -> $12) IN ('string', 'number', 'boolean')
                        THEN metadata::json ->> $12 = $13 END)
                ORDER BY xact, id LIMIT $5
            ) AS e
            LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
            JOIN policies AS p ON p.id = e.policy_id
            JOIN accounts AS a ON a.id = e.account
            LEFT JOIN named_keys AS k ON k.number = e.claimed_by
            ORDER BY e.xact, e.id"
        )
    };
}

/// The same on SQLite.
macro_rules! sqlite_list {
    ($found:literal) => {
        concat!(
            "SELECT e.*, d.held_until, d.made_by, d.reason, d.per, d.bundle, p.name AS policy,
                a.subject, k.id AS made_by_key, k.name AS made_by_name
            FROM (
                SELECT * FROM ",
            $found,
            r#"
                WHERE xact >= $1 AND (xact, id) > ($1, $2)
                    AND xact <= $3 AND (xact, id) <= ($3, $4)
                    AND ($6 IS NULL OR policy_id = $6) AND kind BETWEEN $7 AND $8
                    AND ($9 IS NULL OR claimed_by = $9) AND ($16 = 0 OR flags & $16 <> 0)
                    AND counted_id >= $10 AND counted_id < $11
                    AND ($15 OR account IN (SELECT unhex(value) FROM json_each($14)))
                    AND ($12 IS NULL OR CASE json_type(metadata, '$."' || $12 || '"')
                        WHEN 'text' THEN metadata ->> ('$."' || $12 || '"') = $13
                        WHEN 'object' THEN false WHEN 'array' THEN false WHEN 'null' THEN false
                        ELSE metadata -> ('$."' || $12 || '"') = $13 END)
                ORDER BY xact, id LIMIT $5
            ) AS e
            LEFT JOIN entry_details AS d ON d.account = e.account AND d.number = e.number
            JOIN policies AS p ON p.id = e.policy_id
            JOIN accounts AS a ON a.id = e.account
            LEFT JOIN named_keys AS k ON k.number = e.claimed_by
            ORDER BY e.xact, e.id"#
        )
    };
}

/// Entries one after the other.
pub(super) const IN_TURN: Texts = Texts {
    postgres: postgres_list!("counted_entries"),
    sqlite: sqlite_list!("counted_entries"),
};

/// The most entries that an index may find, so that a page sorts them: more are read one after the other. The
/// statements below have it as `LIMIT 8193`, one more.
pub(super) const FEW: u64 = 8192;

/// What finds the entries of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryIndex {
    Accounts,
    Crossed,
    Kinds,
    Policy,
    Counted,
    CountedOfPolicy,
}

/// The statements of an index: how many entries it finds, and a list of those that fit the filter too. Entries
/// are found in the order of the index, so that no store reads the table instead.
pub(super) struct Indexed {
    pub count: Texts,
    pub list: Texts,
}

const ACCOUNTS: Indexed = Indexed {
    count: Texts {
        postgres: "SELECT count(*) FROM (
            SELECT 1 FROM entries WHERE account = ANY($14)
            ORDER BY account, number LIMIT 8193
        ) AS first",
        sqlite: "SELECT count(*) FROM (
            SELECT 1 FROM entries WHERE account IN (SELECT unhex(value) FROM json_each($14))
            ORDER BY account, number LIMIT 8193
        ) AS first",
    },
    list: Texts {
        postgres: postgres_list!(
            "(
            SELECT * FROM counted_entries WHERE account = ANY($14)
            ORDER BY account, number LIMIT 8193
        ) AS first"
        ),
        sqlite: sqlite_list!(
            "(
            SELECT * FROM counted_entries WHERE account IN (SELECT unhex(value) FROM json_each($14))
            ORDER BY account, number LIMIT 8193
        ) AS first"
        ),
    },
};
const CROSSED: Indexed = Indexed {
    count: Texts {
        postgres: "SELECT count(*) FROM (
            SELECT 1 FROM entries WHERE flags >= 16 AND flags & $16 <> 0
            ORDER BY id LIMIT 8193
        ) AS first",
        sqlite: "SELECT count(*) FROM (
            SELECT 1 FROM entries WHERE flags >= 16 AND flags & $16 <> 0
            ORDER BY id LIMIT 8193
        ) AS first",
    },
    list: Texts {
        postgres: postgres_list!(
            "(
            SELECT * FROM counted_entries WHERE flags >= 16 AND flags & $16 <> 0
            ORDER BY id LIMIT 8193
        ) AS first"
        ),
        sqlite: sqlite_list!(
            "(
            SELECT * FROM counted_entries WHERE flags >= 16 AND flags & $16 <> 0
            ORDER BY id LIMIT 8193
        ) AS first"
        ),
    },
};
const KINDS: Indexed = Indexed {
    count: Texts {
        postgres: "SELECT count(*) FROM (
            SELECT 1 FROM entry_details WHERE kind BETWEEN $7 AND $8 AND kind <> 1
            ORDER BY kind, id LIMIT 8193
        ) AS first",
        sqlite: "SELECT count(*) FROM (
            SELECT 1 FROM entry_details WHERE kind BETWEEN $7 AND $8 AND kind <> 1
            ORDER BY kind, id LIMIT 8193
        ) AS first",
    },
    list: Texts {
        postgres: postgres_list!(
            "(
            SELECT f.* FROM entry_details AS d
            JOIN counted_entries AS f ON f.account = d.account AND f.number = d.number
            WHERE d.kind BETWEEN $7 AND $8 AND d.kind <> 1 ORDER BY d.kind, d.id LIMIT 8193
        ) AS first"
        ),
        sqlite: sqlite_list!(
            "(
            SELECT f.* FROM entry_details AS d
            JOIN counted_entries AS f ON f.account = d.account AND f.number = d.number
            WHERE d.kind BETWEEN $7 AND $8 AND d.kind <> 1 ORDER BY d.kind, d.id LIMIT 8193
        ) AS first"
        ),
    },
};
const POLICY: Indexed = Indexed {
    count: Texts {
        postgres: "SELECT count(*) FROM (
            SELECT 1 FROM entries WHERE policy = $6
            ORDER BY policy, substring(uuid_send(id), 1, 5) LIMIT 8193
        ) AS first",
        sqlite: "SELECT count(*) FROM (
            SELECT 1 FROM entries WHERE policy = $6
            ORDER BY policy, substr(id, 1, 5) LIMIT 8193
        ) AS first",
    },
    list: Texts {
        postgres: postgres_list!(
            "(
            SELECT * FROM counted_entries WHERE policy_id = $6
            ORDER BY policy_id, substring(uuid_send(id), 1, 5) LIMIT 8193
        ) AS first"
        ),
        sqlite: sqlite_list!(
            "(
            SELECT * FROM counted_entries WHERE policy_id = $6
            ORDER BY policy_id, substr(id, 1, 5) LIMIT 8193
        ) AS first"
        ),
    },
};
/// Entries that count by their own ids, and those that count by the ids of the grants that they name.
const COUNTED: Indexed = Indexed {
    count: Texts {
        postgres: "SELECT count(*) FROM (
            SELECT * FROM (
                SELECT 1 AS one FROM entries
                WHERE substring(uuid_send(id), 1, 6)
                        BETWEEN substring(uuid_send($10), 1, 6) AND substring(uuid_send($11), 1, 6)
                    AND id >= $10 AND id < $11
                    AND kind IN (SELECT kind FROM entry_kinds WHERE NOT names_grant)
                ORDER BY substring(uuid_send(id), 1, 6) LIMIT 8193
            ) AS first
            UNION ALL SELECT * FROM (
                SELECT 1 AS one FROM entry_details WHERE of_grant >= $10 AND of_grant < $11
                ORDER BY of_grant LIMIT 8193
            ) AS first
        ) AS f",
        sqlite: "SELECT count(*) FROM (
            SELECT * FROM (
                SELECT 1 AS one FROM entries
                WHERE id >= $10 AND id < $11
                    AND kind IN (SELECT kind FROM entry_kinds WHERE NOT names_grant)
                ORDER BY id LIMIT 8193
            ) AS first
            UNION ALL SELECT * FROM (
                SELECT 1 AS one FROM entry_details WHERE of_grant >= $10 AND of_grant < $11
                ORDER BY of_grant LIMIT 8193
            ) AS first
        ) AS f",
    },
    list: Texts {
        postgres: postgres_list!(
            "(
            SELECT * FROM (
                SELECT * FROM counted_entries
                WHERE substring(uuid_send(id), 1, 6)
                        BETWEEN substring(uuid_send($10), 1, 6) AND substring(uuid_send($11), 1, 6)
                    AND id >= $10 AND id < $11
                    AND kind IN (SELECT kind FROM entry_kinds WHERE NOT names_grant)
                ORDER BY substring(uuid_send(id), 1, 6) LIMIT 8193
            ) AS first
            UNION ALL SELECT * FROM (
                SELECT f.* FROM entry_details AS d
                JOIN counted_entries AS f ON f.account = d.account AND f.number = d.number
                WHERE d.of_grant >= $10 AND d.of_grant < $11 ORDER BY d.of_grant LIMIT 8193
            ) AS first
        ) AS first"
        ),
        sqlite: sqlite_list!(
            "(
            SELECT * FROM (
                SELECT * FROM counted_entries
                WHERE id >= $10 AND id < $11
                    AND kind IN (SELECT kind FROM entry_kinds WHERE NOT names_grant)
                ORDER BY id LIMIT 8193
            ) AS first
            UNION ALL SELECT * FROM (
                SELECT f.* FROM entry_details AS d
                JOIN counted_entries AS f ON f.account = d.account AND f.number = d.number
                WHERE d.of_grant >= $10 AND d.of_grant < $11 ORDER BY d.of_grant LIMIT 8193
            ) AS first
        ) AS first"
        ),
    },
};
const COUNTED_OF_POLICY: Indexed = Indexed {
    count: Texts {
        postgres: "SELECT count(*) FROM (
            SELECT * FROM (
                SELECT 1 AS one FROM entries
                WHERE policy = $6 AND substring(uuid_send(id), 1, 5)
                        BETWEEN substring(uuid_send($10), 1, 5) AND substring(uuid_send($11), 1, 5)
                    AND id >= $10 AND id < $11
                    AND kind IN (SELECT kind FROM entry_kinds WHERE NOT names_grant)
                ORDER BY policy, substring(uuid_send(id), 1, 5) LIMIT 8193
            ) AS first
            UNION ALL SELECT * FROM (
                SELECT 1 AS one FROM entry_details WHERE of_grant >= $10 AND of_grant < $11
                ORDER BY of_grant LIMIT 8193
            ) AS first
        ) AS f",
        sqlite: "SELECT count(*) FROM (
            SELECT * FROM (
                SELECT 1 AS one FROM entries
                WHERE policy = $6 AND substr(id, 1, 5) BETWEEN substr($10, 1, 5) AND substr($11, 1, 5)
                    AND id >= $10 AND id < $11
                    AND kind IN (SELECT kind FROM entry_kinds WHERE NOT names_grant)
                ORDER BY policy, substr(id, 1, 5) LIMIT 8193
            ) AS first
            UNION ALL SELECT * FROM (
                SELECT 1 AS one FROM entry_details WHERE of_grant >= $10 AND of_grant < $11
                ORDER BY of_grant LIMIT 8193
            ) AS first
        ) AS f",
    },
    list: Texts {
        postgres: postgres_list!(
            "(
            SELECT * FROM (
                SELECT * FROM counted_entries
                WHERE policy_id = $6 AND substring(uuid_send(id), 1, 5)
                        BETWEEN substring(uuid_send($10), 1, 5) AND substring(uuid_send($11), 1, 5)
                    AND id >= $10 AND id < $11
                    AND kind IN (SELECT kind FROM entry_kinds WHERE NOT names_grant)
                ORDER BY policy_id, substring(uuid_send(id), 1, 5) LIMIT 8193
            ) AS first
            UNION ALL SELECT * FROM (
                SELECT f.* FROM entry_details AS d
                JOIN counted_entries AS f ON f.account = d.account AND f.number = d.number
                WHERE d.of_grant >= $10 AND d.of_grant < $11 ORDER BY d.of_grant LIMIT 8193
            ) AS first
        ) AS first"
        ),
        sqlite: sqlite_list!(
            "(
            SELECT * FROM (
                SELECT * FROM counted_entries
                WHERE policy_id = $6 AND substr(id, 1, 5) BETWEEN substr($10, 1, 5) AND substr($11, 1, 5)
                    AND id >= $10 AND id < $11
                    AND kind IN (SELECT kind FROM entry_kinds WHERE NOT names_grant)
                ORDER BY policy_id, substr(id, 1, 5) LIMIT 8193
            ) AS first
            UNION ALL SELECT * FROM (
                SELECT f.* FROM entry_details AS d
                JOIN counted_entries AS f ON f.account = d.account AND f.number = d.number
                WHERE d.of_grant >= $10 AND d.of_grant < $11 ORDER BY d.of_grant LIMIT 8193
            ) AS first
        ) AS first"
        ),
    },
};

impl EntryIndex {
    pub(super) const ALL: [Self; 6] = [
        Self::Accounts,
        Self::Crossed,
        Self::Kinds,
        Self::Policy,
        Self::CountedOfPolicy,
        Self::Counted,
    ];

    pub(super) fn statements(self) -> Indexed {
        match self {
            Self::Accounts => ACCOUNTS,
            Self::Crossed => CROSSED,
            Self::Kinds => KINDS,
            Self::Policy => POLICY,
            Self::Counted => COUNTED,
            Self::CountedOfPolicy => COUNTED_OF_POLICY,
        }
    }
}

/// Every statement, by name.
#[cfg(feature = "faults")]
pub(super) fn texts() -> Vec<(String, Texts)> {
    let of_index = |index: EntryIndex| {
        let Indexed { count, list } = index.statements();
        [
            (format!("entries {index:?} count"), count),
            (format!("entries {index:?} list"), list),
        ]
    };
    EntryIndex::ALL
        .into_iter()
        .flat_map(of_index)
        .chain([("entries in turn".to_owned(), IN_TURN)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_finds_one_entry_more_than_a_page_sorts() {
        let limit = format!("LIMIT {}", FEW + 1);
        for index in EntryIndex::ALL {
            let Indexed { count, list } = index.statements();
            for text in [count.postgres, count.sqlite, list.postgres, list.sqlite] {
                assert!(text.contains(&limit), "{text}");
            }
        }
    }
}
