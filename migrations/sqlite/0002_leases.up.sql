-- The lock service's own tables: leases and the token counter.

CREATE TABLE lastdoor_leases (
  resource TEXT NOT NULL PRIMARY KEY CHECK (typeof(resource) = 'text')
) WITHOUT ROWID;
