-- The ledger: one row per resource, the guard row of every fenced write.

CREATE TABLE lastdoor_marks (
  resource      TEXT    NOT NULL PRIMARY KEY
    CHECK (typeof(resource) = 'text'),
  -- The highest token accepted. It never falls; see the triggers below.
  token         INTEGER NOT NULL
    CHECK (typeof(token) = 'integer' AND token BETWEEN 1 AND 9007199254740991),
  -- Who was granted that token: an equal token of another owner is refused.
  owner         TEXT    NOT NULL CHECK (typeof(owner) = 'text'),
  -- The lock service whose tokens this row compares with each other.
  source        TEXT    NOT NULL CHECK (typeof(source) = 'text'),
  -- Number of the last numbered write of this grant; 0: none.
  last_sequence INTEGER NOT NULL DEFAULT 0
    CHECK (typeof(last_sequence) = 'integer' AND last_sequence >= 0)
) WITHOUT ROWID;
