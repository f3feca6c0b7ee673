-- The lock service's own objects: leases, and where their tokens come from.
-- Needs Postgres 14 (time limits on idle sessions, functions parsed once).
--
-- What a role needs to lock:
--   GRANT USAGE ON SCHEMA lastdoor TO application;
--   GRANT SELECT, INSERT, UPDATE ON lastdoor.leases TO application;
--   GRANT SELECT ON lastdoor.token_source, lastdoor.migrations TO application;
--   GRANT USAGE, SELECT ON SEQUENCE lastdoor.token TO application;
-- None of these can set a counter back; the function that raises it runs with
-- its owner's rights.

-- The one counter. It is not owned by a column, so TRUNCATE ... RESTART
-- IDENTITY does not reach it. CACHE 1: sessions that draw ahead would hand
-- numbers out in the wrong order.
CREATE SEQUENCE lastdoor.token AS bigint
  MINVALUE 1 MAXVALUE 9007199254740991 INCREMENT 1 CACHE 1 NO CYCLE;

-- What the counter is known to have belonged to. A failover or a restored
-- backup starts a new timeline; a copy loaded elsewhere has another system.
-- Either may have set the counter back, so nothing is granted until it was
-- raised (raise_token) and the change recorded here.
CREATE TABLE lastdoor.token_source (
  only_row boolean NOT NULL DEFAULT true
    CONSTRAINT token_source_pkey PRIMARY KEY
    CONSTRAINT token_source_has_one_row CHECK (only_row),
  system   text    NOT NULL,
  timeline text    NOT NULL
);

-- One row per resource that was ever locked. A release leaves it: a token
-- that was drawn for a row before the row was won is never used, and a
-- repeated release is recognised. Full pages are left room, so that a grant
-- touches no index.
CREATE TABLE lastdoor.leases (
  name_space text        COLLATE "C" NOT NULL,
  resource   text        COLLATE "C" NOT NULL
    CONSTRAINT leases_resource_length
      CHECK (octet_length(resource) BETWEEN 1 AND 512),
  -- The random identity of the last grant: who may renew and release.
  owner      text        COLLATE "C" NOT NULL,
  -- The token of that grant; it does not change while the lease lasts.
  token      bigint      NOT NULL
    CONSTRAINT leases_token_range CHECK (token BETWEEN 0 AND 9007199254740991),
  -- By the clock of this server, whatever zone a session has. It is what the
  -- holder asked for; nobody else's TTL matters. -infinity: released.
  expires_at timestamptz NOT NULL,
  -- Free text for people who find it busy: "host:pid".
  holder     text        NOT NULL,
  CONSTRAINT leases_pkey PRIMARY KEY (name_space, resource)
) WITH (fillfactor = 50);

CREATE FUNCTION lastdoor.keep_leases() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'lastdoor: leases that are held would be forgotten'
    USING ERRCODE = 'LD003',
          HINT = 'Rows that have expired may be deleted one by one.';
END
$$;

CREATE TRIGGER leases_are_kept BEFORE TRUNCATE ON lastdoor.leases
  FOR EACH STATEMENT EXECUTE FUNCTION lastdoor.keep_leases();
ALTER TABLE lastdoor.leases ENABLE ALWAYS TRIGGER leases_are_kept;

-- The 64-bit key of a name for advisory locks: the first eight bytes of its
-- SHA-256, most significant first. The same on every machine and in every
-- release; hashtext() promises neither.
CREATE FUNCTION lastdoor.lock_key(name text) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ('x' || encode(substr(sha256(convert_to('lastdoor/' || name, 'UTF8')),
                             1, 8), 'hex'))::bit(64)::bigint;

-- The server that this is. Reading it takes a file, so it is asked once per
-- connection. Empty where a hosting service does not tell.
CREATE FUNCTION lastdoor.this_system() RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RETURN (SELECT system_identifier::text FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege OR undefined_function
            OR feature_not_supported THEN
  RETURN '';
END
$$;

-- Afterwards every new token is above `above` and above every token that a
-- lease has; and when the server is not the one that the counter is known to
-- have belonged to, above every token that may have been handed out meanwhile,
-- which fewer than a million grants a second keep below the microseconds of
-- the clock. Never lowers anything. Answers the number that the next token is
-- above.
CREATE FUNCTION lastdoor.raise_token(above bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  here    lastdoor.token_source;
  counted bigint;
  target  bigint;
BEGIN
  here := (true, lastdoor.this_system(),
           substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8));
  -- Takes the one lock that nextval() waits for, until the end of this
  -- transaction: a value drawn between reading the counter and setting it
  -- would be handed out twice.
  ALTER SEQUENCE lastdoor.token NO CYCLE;
  SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END
    INTO counted FROM lastdoor.token;
  target := greatest(above, counted,
                     (SELECT max(token) FROM lastdoor.leases));
  IF NOT EXISTS (SELECT FROM lastdoor.token_source AS known
                  WHERE known.system = here.system
                    AND known.timeline = here.timeline) THEN
    target := greatest(target,
                       floor(extract(epoch FROM clock_timestamp())
                             * 1000000)::bigint);
    INSERT INTO lastdoor.token_source VALUES (here.*)
    ON CONFLICT (only_row) DO UPDATE
      SET system = excluded.system, timeline = excluded.timeline;
  END IF;
  IF target > counted THEN
    PERFORM setval('lastdoor.token', target, true);
  END IF;
  -- The counter must be on disk before a token above it is handed out.
  PERFORM set_config('synchronous_commit', 'on', true);
  RETURN target;
END
$$;
