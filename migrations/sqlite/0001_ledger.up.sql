-- The ledger: one row per resource, the guard row of every fenced write.
--
-- The triggers hold for every program that opens the file. They use built-in
-- SQL only, so a stock shell and a build with an untrusted schema can write
-- too. Their messages start with "lastdoor: <code>: "; the code is the name
-- that errors.hpp has for it.

CREATE TABLE lastdoor_marks (
  resource      TEXT    NOT NULL PRIMARY KEY
    CHECK (typeof(resource) = 'text' AND resource <> ''),
  -- The highest token accepted. It never falls; see the triggers below.
  -- The upper edge, 2^53-1, is where other programs' numbers stop being exact.
  token         INTEGER NOT NULL
    CHECK (typeof(token) = 'integer' AND token BETWEEN 1 AND 9007199254740991),
  -- Who was granted that token: an equal token of another owner is refused.
  owner         TEXT    NOT NULL
    CHECK (typeof(owner) = 'text' AND length(owner) BETWEEN 40 AND 128
           AND owner NOT GLOB '*[^0-9a-f]*'),
  -- The lock service whose tokens this row compares with each other.
  source        TEXT    NOT NULL
    CHECK (typeof(source) = 'text' AND length(source) BETWEEN 1 AND 128),
  -- Number of the last numbered write of this grant; 0: none.
  last_sequence INTEGER NOT NULL DEFAULT 0
    CHECK (typeof(last_sequence) = 'integer' AND last_sequence >= 0)
) WITHOUT ROWID;

-- Lock services that were replaced. Their tokens are refused everywhere, also
-- on resources that have no mark yet. A retired name never comes back.
CREATE TABLE lastdoor_retired_sources (
  source    TEXT NOT NULL PRIMARY KEY
    CHECK (typeof(source) = 'text' AND length(source) BETWEEN 1 AND 128),
  successor TEXT NOT NULL
    CHECK (typeof(successor) = 'text' AND successor <> source)
) WITHOUT ROWID;

CREATE TRIGGER lastdoor_retired_sources_update
BEFORE UPDATE ON lastdoor_retired_sources BEGIN
  SELECT RAISE(ABORT, 'lastdoor: invalid_argument: a hand-over is final');
END;

CREATE TRIGGER lastdoor_retired_sources_delete
BEFORE DELETE ON lastdoor_retired_sources BEGIN
  SELECT RAISE(ABORT, 'lastdoor: invalid_argument: a hand-over is final');
END;

-- REPLACE deletes without firing a delete trigger.
CREATE TRIGGER lastdoor_retired_sources_insert
BEFORE INSERT ON lastdoor_retired_sources BEGIN
  SELECT RAISE(ABORT, 'lastdoor: invalid_argument: a hand-over is final')
  WHERE EXISTS (SELECT 1 FROM lastdoor_retired_sources AS r
                WHERE r.source = new.source);
END;

-- An insert may be a REPLACE, so it is judged like an update of the row that
-- it would replace.
CREATE TRIGGER lastdoor_marks_insert
BEFORE INSERT ON lastdoor_marks BEGIN
  SELECT RAISE(ABORT, 'lastdoor: stale_token: a mark never falls')
  WHERE EXISTS (SELECT 1 FROM lastdoor_marks AS m
                WHERE m.resource = new.resource
                  AND (m.token > coalesce(new.token, 0)
                       OR (m.token = new.token
                           AND (m.owner IS NOT new.owner
                                OR m.last_sequence
                                   > coalesce(new.last_sequence, -1)))));
  SELECT RAISE(ABORT, 'lastdoor: wrong_source: the mark is of another source')
  WHERE EXISTS (SELECT 1 FROM lastdoor_marks AS m
                WHERE m.resource = new.resource AND m.source <> new.source);
  SELECT RAISE(ABORT, 'lastdoor: wrong_source: the source was retired')
  WHERE EXISTS (SELECT 1 FROM lastdoor_retired_sources AS r
                WHERE r.source = new.source);
END;

-- What only counts up the numbers of a grant's writes is quick. A NULL is
-- judged as the lowest: OR REPLACE would make the default of it afterwards.
CREATE TRIGGER lastdoor_marks_update
BEFORE UPDATE ON lastdoor_marks
WHEN NOT (new.token IS old.token AND new.owner IS old.owner
          AND new.source IS old.source AND new.resource IS old.resource
          AND coalesce(new.last_sequence, -1) >= old.last_sequence)
BEGIN
  SELECT RAISE(ABORT, 'lastdoor: stale_token: a mark never falls')
  WHERE coalesce(new.token, 0) < old.token
     OR (new.token = old.token
         AND (new.owner IS NOT old.owner
              OR coalesce(new.last_sequence, -1) < old.last_sequence));
  SELECT RAISE(ABORT, 'lastdoor: invalid_argument: a mark keeps its resource')
  WHERE new.resource IS NOT old.resource;
  -- Only a hand-over moves a mark: it retires the old source first.
  SELECT RAISE(ABORT, 'lastdoor: wrong_source: the mark is of another source')
  WHERE new.source IS NOT old.source
    AND NOT EXISTS (SELECT 1 FROM lastdoor_retired_sources AS r
                    WHERE r.source = old.source
                      AND r.successor = new.source);
  SELECT RAISE(ABORT, 'lastdoor: wrong_source: the source was retired')
  WHERE new.token > old.token
    AND EXISTS (SELECT 1 FROM lastdoor_retired_sources AS r
                WHERE r.source = new.source);
END;

CREATE TRIGGER lastdoor_marks_delete
BEFORE DELETE ON lastdoor_marks BEGIN
  SELECT RAISE(ABORT, 'lastdoor: stale_token: a mark is never deleted');
END;

-- The token that the running transaction presents to guarded tables. To
-- insert a row is to claim. The transaction that inserts it deletes it again:
--
--   BEGIN IMMEDIATE;
--   INSERT INTO lastdoor_presented (resource, token, owner, source)
--   VALUES (...);
--   ... writes ...
--   DELETE FROM lastdoor_presented;
--   COMMIT;
--
-- A row that was forgotten is cleared by the next claim, and counts for
-- nothing once a newer token has raised the mark.
CREATE TABLE lastdoor_presented (
  resource TEXT    NOT NULL PRIMARY KEY
    CHECK (typeof(resource) = 'text' AND resource <> ''),
  token    INTEGER NOT NULL
    CHECK (typeof(token) = 'integer' AND token BETWEEN 1 AND 9007199254740991),
  owner    TEXT    NOT NULL
    CHECK (typeof(owner) = 'text' AND length(owner) BETWEEN 40 AND 128
           AND owner NOT GLOB '*[^0-9a-f]*'),
  source   TEXT    NOT NULL
    CHECK (typeof(source) = 'text' AND length(source) BETWEEN 1 AND 128)
) WITHOUT ROWID;

-- One row at most, whatever a transaction before has left.
CREATE TRIGGER lastdoor_presented_before
BEFORE INSERT ON lastdoor_presented
WHEN EXISTS (SELECT 1 FROM lastdoor_presented) BEGIN
  DELETE FROM lastdoor_presented;
END;

-- A mark that is the token's already says it all; it is of no retired source,
-- for a hand-over takes the marks along.
CREATE TRIGGER lastdoor_presented_claim
AFTER INSERT ON lastdoor_presented
WHEN NOT EXISTS (SELECT 1 FROM lastdoor_marks AS m
                 WHERE m.resource = new.resource AND m.token = new.token
                   AND m.owner = new.owner AND m.source = new.source)
BEGIN
  SELECT RAISE(ABORT, 'lastdoor: wrong_source: the source was retired')
  WHERE EXISTS (SELECT 1 FROM lastdoor_retired_sources AS r
                WHERE r.source = new.source);
  SELECT RAISE(ABORT, 'lastdoor: wrong_source: the mark is of another source')
  WHERE EXISTS (SELECT 1 FROM lastdoor_marks AS m
                WHERE m.resource = new.resource AND m.source <> new.source);
  SELECT RAISE(ABORT, 'lastdoor: stale_token: a newer token was here')
  WHERE EXISTS (SELECT 1 FROM lastdoor_marks AS m
                WHERE m.resource = new.resource AND m.token > new.token);
  SELECT RAISE(ABORT, 'lastdoor: stale_token: the token is of another owner')
  WHERE EXISTS (SELECT 1 FROM lastdoor_marks AS m
                WHERE m.resource = new.resource AND m.token = new.token
                  AND m.owner <> new.owner);
  UPDATE lastdoor_marks
     SET token = new.token, owner = new.owner, last_sequence = 0
   WHERE resource = new.resource AND token < new.token;
  INSERT INTO lastdoor_marks (resource, token, owner, source)
  SELECT new.resource, new.token, new.owner, new.source
   WHERE NOT EXISTS (SELECT 1 FROM lastdoor_marks AS m
                     WHERE m.resource = new.resource);
  -- INSERT OR IGNORE makes the two statements above ignore as well.
  SELECT RAISE(ABORT, 'lastdoor: internal: the claim did not take effect')
  WHERE NOT EXISTS (SELECT 1 FROM lastdoor_marks AS m
                    WHERE m.resource = new.resource AND m.token = new.token
                      AND m.owner = new.owner AND m.source = new.source);
END;

CREATE TRIGGER lastdoor_presented_update
BEFORE UPDATE ON lastdoor_presented BEGIN
  SELECT RAISE(ABORT,
    'lastdoor: invalid_argument: delete what was presented and insert anew');
END;

-- What the guards ask: the token presented, if it is still the mark.
CREATE VIEW lastdoor_bearer (resource, token) AS
SELECT p.resource, p.token
  FROM lastdoor_presented AS p
  JOIN lastdoor_marks AS m
    ON m.resource = p.resource AND m.token = p.token
   AND m.owner = p.owner AND m.source = p.source;

-- What guards in audit mode would have refused. For people; nothing reads it.
CREATE TABLE lastdoor_audit (
  id         INTEGER PRIMARY KEY,
  at         TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
  table_name TEXT NOT NULL,
  operation  TEXT NOT NULL,
  row_key    TEXT,
  reason     TEXT NOT NULL,
  -- What was presented, if anything was, and the fence of the row.
  resource   TEXT,
  presented  INTEGER,
  fence      INTEGER
);

-- Between the two halves of one statement on a table with a guard in audit
-- mode: the highest fence of the rows that a REPLACE takes away, so that the
-- row which comes instead does not fall below it.
CREATE TABLE lastdoor_replaced (
  table_name TEXT NOT NULL PRIMARY KEY,
  fence      INTEGER NOT NULL
) WITHOUT ROWID;
