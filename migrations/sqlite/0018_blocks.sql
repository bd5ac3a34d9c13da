-- Blocks: a subject that a policy denies, whatever its limits are. A version of a block is a row of
-- `override_versions`, with {"blocked":true} or {"blocked":false} as `limits`. An older perdiem cannot read
-- such a row, so it decides no claims of the policy. While a subject is blocked, the versions of its
-- override are {"limits":[…]} or {"limits":null}, which an older perdiem cannot read either.
--
-- The override of a subject with a `max` of 0 becomes a block, with its end, its author and its reason. The
-- other limits of the override stay. The versions of the past are not changed. Each such override gets two
-- new versions, at the newest instant that the ledger knows: no explanation of an earlier instant changes.
UPDATE ledger SET revision = revision + 2 * (
    SELECT count(*) FROM override_versions AS v JOIN overrides AS o ON o.account = v.account
    WHERE o.subject IS NOT NULL AND v.limits LIKE '[%' AND v.version = (
        SELECT MAX(w.version) FROM override_versions AS w WHERE w.account = v.account
    ) AND EXISTS (SELECT 1 FROM json_each(v.limits) AS l WHERE json_extract(l.value, '$.max') = 0)
);

WITH blocking AS (
    SELECT v.account, v.version, v.until, v.changed_by, v.reason,
        row_number() OVER (ORDER BY v.revision) AS place,
        MAX(
            v.changed_at,
            COALESCE((SELECT MAX(seen_at) FROM instances), 0),
            COALESCE((SELECT MAX(recorded_at) FROM record_marks), 0),
            COALESCE((SELECT changed_at FROM acts ORDER BY revision DESC LIMIT 1), 0),
            COALESCE((SELECT at FROM entries ORDER BY xact DESC LIMIT 1), 0)
        ) AS changed_at,
        NULLIF((
            SELECT json_group_array(json(l.value)) FROM json_each(v.limits) AS l
            WHERE json_extract(l.value, '$.max') > 0
        ), '[]') AS others
    FROM override_versions AS v JOIN overrides AS o ON o.account = v.account
    WHERE o.subject IS NOT NULL AND v.limits LIKE '[%' AND v.version = (
        SELECT MAX(w.version) FROM override_versions AS w WHERE w.account = v.account
    ) AND EXISTS (SELECT 1 FROM json_each(v.limits) AS l WHERE json_extract(l.value, '$.max') = 0)
), numbered AS (
    SELECT blocking.*, (SELECT revision FROM ledger) - 2 * count(*) OVER () + 2 * place AS revision
    FROM blocking
)
INSERT INTO override_versions
    (account, version, revision, limits, until, changed_at, changed_by, reason, xact)
SELECT account, version + 1, revision - 1, '{"blocked":true}', until, changed_at, changed_by, reason,
    (SELECT COALESCE(MAX(xact), 0) FROM entries)
FROM numbered
UNION ALL
SELECT account, version + 2, revision, '{"limits":' || COALESCE(others, 'null') || '}',
    CASE WHEN others IS NOT NULL THEN until END, changed_at, changed_by, reason,
    (SELECT COALESCE(MAX(xact), 0) FROM entries)
FROM numbered;
