-- The lock service's own tables: the token counter and the leases.

-- One row per name space. It is the only source of tokens: they are never
-- worked out from the leases, whose rows are free to go.
CREATE TABLE lastdoor_counters (
  name_space     TEXT    NOT NULL PRIMARY KEY
    CONSTRAINT counter_name_space_is_text CHECK (typeof(name_space) = 'text'),
  -- The token of the last grant. SQLite turns an integer that overflows into
  -- a real number, and a column takes any type: hence the typeof.
  value          INTEGER NOT NULL
    CONSTRAINT counter_value_is_a_mark CHECK (
      typeof(value) = 'integer' AND value BETWEEN 0 AND 9007199254740991),
  -- Tokens up to this one may be handed out without waiting for the disk:
  -- this number is synced before the first of them is. After a power cut
  -- `value` may be an old one; the next grant then starts from here.
  reserved_until INTEGER NOT NULL
    CONSTRAINT counter_reservation_covers_value CHECK (
      typeof(reserved_until) = 'integer'
      AND reserved_until BETWEEN value AND 9007199254740991),
  -- The boot in which the block was reserved. Within it no power was cut,
  -- so `value` is exact.
  boot_id        TEXT    NOT NULL
    CONSTRAINT counter_boot_id_is_text CHECK (typeof(boot_id) = 'text')
) WITHOUT ROWID;

-- What a counter forgets, a store may have seen. Whoever wants to reset one
-- has to take these triggers away first.
CREATE TRIGGER lastdoor_counters_update
BEFORE UPDATE ON lastdoor_counters BEGIN
  SELECT RAISE(ABORT, 'lastdoor: token_regressed: a token counter never falls')
  WHERE new.value < old.value
     OR new.reserved_until < old.reserved_until
     OR new.name_space <> old.name_space;
END;

CREATE TRIGGER lastdoor_counters_delete
BEFORE DELETE ON lastdoor_counters BEGIN
  SELECT RAISE(ABORT, 'lastdoor: token_regressed: a token counter is kept');
END;

-- REPLACE deletes without firing a delete trigger.
CREATE TRIGGER lastdoor_counters_insert
BEFORE INSERT ON lastdoor_counters BEGIN
  SELECT RAISE(ABORT, 'lastdoor: token_regressed: a token counter never falls')
  WHERE EXISTS (SELECT 1 FROM lastdoor_counters AS c
                WHERE c.name_space = new.name_space
                  AND (c.value > new.value
                       OR c.reserved_until > new.reserved_until));
END;

-- One row per resource that was ever locked. A release marks the row free and
-- keeps it, so that a repeated release is recognised.
CREATE TABLE lastdoor_leases (
  name_space    TEXT    NOT NULL
    CONSTRAINT lease_name_space_is_text CHECK (typeof(name_space) = 'text'),
  resource      TEXT    NOT NULL
    CONSTRAINT lease_resource_is_text CHECK (typeof(resource) = 'text'),
  -- Who may renew and release: the random identity of the last grant.
  owner         TEXT    NOT NULL
    CONSTRAINT lease_owner_is_text CHECK (typeof(owner) = 'text'),
  -- The token of that grant; it does not change while the lease lasts.
  token         INTEGER NOT NULL
    CONSTRAINT lease_token_is_a_token CHECK (
      typeof(token) = 'integer' AND token BETWEEN 1 AND 9007199254740991),
  -- Free text for people who find it busy: "host:pid".
  holder        TEXT    NOT NULL
    CONSTRAINT lease_holder_is_text CHECK (typeof(holder) = 'text'),
  -- The end of the lease on CLOCK_BOOTTIME, in its own unit so that nothing
  -- is rounded. It is what the holder asked for; nobody else's TTL matters.
  expires_at_ns INTEGER NOT NULL
    CONSTRAINT lease_expiry_is_integer CHECK (
      typeof(expires_at_ns) = 'integer'),
  -- That clock starts at zero in every boot, so the number above means
  -- nothing in another one: the lease is over then, as its holder is.
  boot_id       TEXT    NOT NULL
    CONSTRAINT lease_boot_id_is_text CHECK (typeof(boot_id) = 'text'),
  -- 1 after a release.
  released      INTEGER NOT NULL DEFAULT 0
    CONSTRAINT lease_released_is_a_flag CHECK (released IN (0, 1)),
  PRIMARY KEY (name_space, resource)
) WITHOUT ROWID;
