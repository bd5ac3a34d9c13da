-- Entries of the kinds that few entries have are listed by kind, over all policies and days.
CREATE INDEX entry_details_kinds ON entry_details (kind, id) WHERE kind <> 1;
