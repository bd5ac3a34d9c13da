-- Provisional grants: those that Redis alone decided, appended afterwards. 0 when the grant
-- had room in its windows, 1 when it went over. Its instant stands in its id; `at` is never
-- before the line before it.
ALTER TABLE entries ADD COLUMN provisional INTEGER CHECK (provisional IN (0, 1));
CREATE INDEX entries_provisional ON entries (id) WHERE provisional IS NOT NULL;
