-- The ledger and the guards: what keeps a stale write out of a database.
-- Needs Postgres 13 (row triggers on partitioned tables, 64-bit xids).
--
-- An application's role needs one right for all of this:
--   GRANT USAGE ON SCHEMA lastdoor TO application;
--
-- Every function pins its search_path and names every object in full: the
-- path of a session decides nothing here. Those that touch the ledger run
-- with their owner's rights, so that no application can touch a mark by hand.
--
-- SQLSTATEs, outside every class that drivers, poolers and ORMs retry:
--   LD001  stale: a newer holder was here; never retry with this token
--   LD002  no token, or none that counts, was presented in this transaction
--   LD003  refused to everybody: a mark would fall or move, or TRUNCATE would
--          empty a guarded table without a look at its rows
--   LD004  the token is of a source that this resource is not bound to

CREATE SCHEMA lastdoor;
COMMENT ON SCHEMA lastdoor IS 'Marks, leases and guards of lastdoor.';

-- Every token source that was seen. The first claim of a resource locks the
-- row of its source here, so that it and a hand-over cannot miss each other.
CREATE TABLE lastdoor.sources (
  source    text COLLATE "C" NOT NULL
    CONSTRAINT sources_pkey PRIMARY KEY
    CONSTRAINT sources_source_length
      CHECK (pg_catalog.octet_length(source) BETWEEN 1 AND 128),
  -- Set by a hand-over: this source is refused everywhere, also for
  -- resources that have no mark yet. A retired name never comes back.
  successor text COLLATE "C"
    CONSTRAINT sources_successor_differs CHECK (successor <> source)
);

-- One row per resource: the guard row of every fenced write. Names are
-- compared as bytes, so an upgrade of the C library or of ICU cannot reorder
-- the index. Pages keep some room, so that raising a mark does not touch it.
CREATE TABLE lastdoor.marks (
  resource      text COLLATE "C" NOT NULL
    CONSTRAINT marks_pkey PRIMARY KEY
    CONSTRAINT marks_resource_length
      CHECK (pg_catalog.octet_length(resource) BETWEEN 1 AND 512),
  -- The highest token accepted. It never falls; see the triggers below.
  -- The upper edge, 2^53-1, is where other programs' numbers stop being exact.
  token         bigint NOT NULL
    CONSTRAINT marks_token_range CHECK (token BETWEEN 1 AND 9007199254740991),
  -- Who was granted that token: an equal token of another owner is refused.
  owner         text COLLATE "C" NOT NULL
    CONSTRAINT marks_owner_hex CHECK (owner ~ '^[0-9a-f]{40,128}$'),
  -- The lock service whose tokens this row compares with each other.
  source        text COLLATE "C" NOT NULL
    CONSTRAINT marks_source_fkey REFERENCES lastdoor.sources,
  -- Number of the last numbered write of this grant; 0: none.
  last_sequence bigint NOT NULL DEFAULT 0
    CONSTRAINT marks_sequence_range CHECK (last_sequence >= 0)
) WITH (fillfactor = 70);

-- What guards in audit mode would have refused: one row per transaction,
-- table, operation and reason, so that a bulk write does not flood it. For
-- people; nothing reads it, and nothing of lastdoor's deletes from it.
CREATE TABLE lastdoor.audit (
  id           bigint GENERATED ALWAYS AS IDENTITY
    CONSTRAINT audit_pkey PRIMARY KEY,
  at           timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  table_name   text NOT NULL,
  operation    text NOT NULL,
  reason       text NOT NULL, -- the SQLSTATE it would have been refused with
  message      text NOT NULL,
  session_role text NOT NULL,
  application  text NOT NULL,
  client       inet,
  query        text NOT NULL -- its first 1,000 characters
);

-- The right to lock a mark's row is the right to update some column of it.
-- It is given for the name, whose change the trigger refuses to everybody.
GRANT SELECT, UPDATE (resource) ON lastdoor.marks TO PUBLIC;
GRANT SELECT ON lastdoor.sources TO PUBLIC;

-- G3: no hand lowers, moves or removes a mark, whatever the statement.

CREATE FUNCTION lastdoor.keep_marks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  -- Only a hand-over moves a mark: it retires the old source first.
  IF TG_OP = 'UPDATE' AND NEW.resource = OLD.resource
     AND NEW.token = OLD.token AND NEW.owner = OLD.owner
     AND NEW.last_sequence = OLD.last_sequence
     AND EXISTS (SELECT FROM lastdoor.sources s
                  WHERE s.source = OLD.source AND s.successor = NEW.source)
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION USING
    ERRCODE = 'LD003',
    MESSAGE = format('lastdoor: %s on lastdoor.%s is refused: '
                     'a mark never falls or moves', TG_OP, TG_TABLE_NAME),
    HINT = 'With a lower mark a stale writer would pass.';
END
$$;

CREATE TRIGGER keep_marks_update
  BEFORE UPDATE ON lastdoor.marks FOR EACH ROW
  WHEN (NEW.resource <> OLD.resource
        OR NEW.source <> OLD.source
        OR NEW.token < OLD.token
        OR NEW.token = OLD.token AND (NEW.owner <> OLD.owner
          OR NEW.last_sequence < OLD.last_sequence))
  EXECUTE FUNCTION lastdoor.keep_marks();
CREATE TRIGGER keep_marks_delete
  BEFORE DELETE ON lastdoor.marks FOR EACH ROW
  EXECUTE FUNCTION lastdoor.keep_marks();
CREATE TRIGGER keep_marks_truncate
  BEFORE TRUNCATE ON lastdoor.marks FOR EACH STATEMENT
  EXECUTE FUNCTION lastdoor.keep_marks();

CREATE FUNCTION lastdoor.keep_sources() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  RAISE EXCEPTION USING
    ERRCODE = 'LD003',
    MESSAGE = format('lastdoor: %s on lastdoor.%s is refused: '
                     'a hand-over is final', TG_OP, TG_TABLE_NAME);
END
$$;

CREATE TRIGGER keep_sources_update
  BEFORE UPDATE ON lastdoor.sources FOR EACH ROW
  WHEN (NEW.source <> OLD.source OR OLD.successor IS NOT NULL)
  EXECUTE FUNCTION lastdoor.keep_sources();
CREATE TRIGGER keep_sources_delete
  BEFORE DELETE ON lastdoor.sources FOR EACH ROW
  EXECUTE FUNCTION lastdoor.keep_sources();
CREATE TRIGGER keep_sources_truncate
  BEFORE TRUNCATE ON lastdoor.sources FOR EACH STATEMENT
  EXECUTE FUNCTION lastdoor.keep_sources();

-- ALWAYS: also in a session that plays the replica.
ALTER TABLE lastdoor.marks
  ENABLE ALWAYS TRIGGER keep_marks_update,
  ENABLE ALWAYS TRIGGER keep_marks_delete,
  ENABLE ALWAYS TRIGGER keep_marks_truncate;
ALTER TABLE lastdoor.sources
  ENABLE ALWAYS TRIGGER keep_sources_update,
  ENABLE ALWAYS TRIGGER keep_sources_delete,
  ENABLE ALWAYS TRIGGER keep_sources_truncate;

-- Bounds what is left of the running transaction: waits for locks, and
-- pauses between statements. A limit that is tighter already stays. Both end
-- with the transaction.
CREATE FUNCTION lastdoor.bound(p_ms integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  limit_ms text := greatest(p_ms, 1)::text;
  name     text;
  present  text;
BEGIN
  FOREACH name IN ARRAY
    ARRAY['lock_timeout', 'idle_in_transaction_session_timeout']
  LOOP
    present := current_setting(name);
    IF present = '0'
       OR present::interval > (limit_ms || ' ms')::interval THEN
      PERFORM set_config(name, limit_ms, true);
    END IF;
  END LOOP;
END
$$;

-- Claims a resource for a grant, for the rest of the transaction: the row of
-- its mark stays locked, so no newer grant can be claimed before this
-- transaction has ended. The answer is a row and not an exception, because a
-- refusal is an ordinary event and a cheap one.
--
--   verdict       what it means
--   held          the mark was the token already; locked
--   raised        the mark is the token now; locked
--   applied       the write numbered p_sequence took effect before
--   stale         a higher mark was read; it is in `mark`
--   other_owner   the token is somebody else's
--   wrong_source  the resource is bound to `mark_source`
--   retired       the source was handed over to `mark_source`
--   invalid       the arguments can never be right
--
-- xid and timeline: by these the fate of this transaction can be asked later.
-- After a failover the same xid may mean another transaction.
-- p_sequence: records the number of the write in this transaction.
-- p_bound_ms: see lastdoor.bound.
CREATE FUNCTION lastdoor.claim(
  p_resource text, p_token bigint, p_owner text, p_source text,
  p_sequence bigint DEFAULT NULL, p_bound_ms integer DEFAULT NULL,
  OUT verdict text, OUT mark bigint, OUT mark_source text,
  OUT xid text, OUT timeline text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  seen record;
BEGIN
  IF p_bound_ms IS NOT NULL THEN
    PERFORM lastdoor.bound(p_bound_ms);
  END IF;
  -- Each round sees the newest rows; another one is needed only when the row
  -- changed between two of its statements. (In the stricter isolation levels
  -- such a change ends the transaction with 40001 instead.)
  FOR round IN 1 .. 100 LOOP
    -- Equal, and ours. A lower mark is never share-locked: two claims that
    -- both did and then both raised it would deadlock.
    IF p_sequence IS NULL THEN
      PERFORM FROM lastdoor.marks m
        WHERE m.resource = p_resource AND m.token = p_token
          AND m.owner = p_owner AND m.source = p_source
          FOR SHARE;
    ELSE
      UPDATE lastdoor.marks m SET last_sequence = p_sequence
       WHERE m.resource = p_resource AND m.token = p_token
         AND m.owner = p_owner AND m.source = p_source
         AND m.last_sequence < p_sequence;
    END IF;
    IF FOUND THEN
      verdict := 'held';
      EXIT;
    END IF;
    IF p_token IS NULL OR p_token NOT BETWEEN 1 AND 9007199254740991
       OR p_resource IS NULL
       OR octet_length(p_resource) NOT BETWEEN 1 AND 512
       OR p_owner IS NULL OR p_owner !~ '^[0-9a-f]{40,128}$'
       OR p_source IS NULL OR octet_length(p_source) NOT BETWEEN 1 AND 128
       OR p_sequence < 1
    THEN
      verdict := 'invalid';
      EXIT;
    END IF;

    UPDATE lastdoor.marks m
       SET token = p_token, owner = p_owner,
           last_sequence = coalesce(p_sequence, 0)
     WHERE m.resource = p_resource AND m.source = p_source
       AND m.token < p_token;
    IF FOUND THEN
      verdict := 'raised';
      EXIT;
    END IF;

    SELECT m.* INTO seen FROM lastdoor.marks m WHERE m.resource = p_resource;
    IF FOUND THEN
      mark := seen.token;
      mark_source := seen.source;
      verdict := CASE
        WHEN seen.source <> p_source THEN 'wrong_source'
        WHEN seen.token > p_token THEN 'stale'
        WHEN seen.token < p_token THEN NULL
        WHEN seen.owner <> p_owner THEN 'other_owner'
        WHEN seen.last_sequence >= p_sequence THEN 'applied'
      END;
      EXIT WHEN verdict IS NOT NULL;
      CONTINUE;
    END IF;

    SELECT s.successor INTO seen FROM lastdoor.sources s
     WHERE s.source = p_source FOR SHARE;
    IF NOT FOUND THEN
      INSERT INTO lastdoor.sources (source) VALUES (p_source)
        ON CONFLICT DO NOTHING;
      CONTINUE WHEN NOT FOUND;
    ELSIF seen.successor IS NOT NULL THEN
      mark := 0;
      mark_source := seen.successor;
      verdict := 'retired';
      EXIT;
    END IF;
    INSERT INTO lastdoor.marks (resource, token, owner, source, last_sequence)
    VALUES (p_resource, p_token, p_owner, p_source, coalesce(p_sequence, 0))
      ON CONFLICT DO NOTHING;
    IF FOUND THEN
      verdict := 'raised';
      EXIT;
    END IF;
  END LOOP;

  IF verdict IS NULL THEN
    RAISE EXCEPTION USING
      ERRCODE = '40001',
      MESSAGE = format('lastdoor: the mark of "%s" changes too often',
                       p_resource);
  ELSIF verdict NOT IN ('held', 'raised') THEN
    -- Whatever was presented before in this transaction counts no more.
    PERFORM set_config('lastdoor.evidence', '', true);
    RETURN;
  END IF;
  mark := p_token;
  mark_source := p_source;
  xid := pg_current_xact_id()::text;
  timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
  PERFORM set_config('lastdoor.evidence',
                     xid || ' ' || p_token || ' ' || p_resource, true);
  -- A mark that was raised must be there after a crash as well.
  IF verdict = 'raised' AND current_setting('synchronous_commit') = 'off' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END
$$;

-- The same for SQL by hand and for ORMs, where nobody looks at a verdict:
-- raises unless the mark is held or was raised.
CREATE FUNCTION lastdoor.present(
  p_resource text, p_token bigint, p_owner text, p_source text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  c record;
BEGIN
  SELECT * INTO c
    FROM lastdoor.claim(p_resource, p_token, p_owner, p_source);
  IF c.verdict IN ('held', 'raised') THEN
    RETURN;
  END IF;
  RAISE EXCEPTION USING
    ERRCODE = CASE c.verdict WHEN 'stale' THEN 'LD001'
                             WHEN 'other_owner' THEN 'LD001'
                             WHEN 'invalid' THEN 'LD002'
                             ELSE 'LD004' END,
    MESSAGE = format('lastdoor: token %s for "%s" is refused: %s; the mark '
                     'is %s of source "%s"',
                     p_token, p_resource, c.verdict, c.mark, c.mark_source),
    HINT = 'Stop. Acquire the lock anew for a new token; do not retry.';
END
$$;

-- Binds to p_to what was bound to p_from, and refuses p_from from now on.
-- Answers the number of marks. For the owner of the ledger only.
CREATE FUNCTION lastdoor.hand_over(p_from text, p_to text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  moved bigint;
BEGIN
  INSERT INTO lastdoor.sources (source) VALUES (p_from), (p_to)
    ON CONFLICT DO NOTHING;
  PERFORM FROM lastdoor.sources s WHERE s.source = p_to FOR UPDATE;
  IF EXISTS (SELECT FROM lastdoor.sources s
              WHERE s.source = p_to AND s.successor IS NOT NULL) THEN
    RAISE EXCEPTION USING
      ERRCODE = '22023',
      MESSAGE = format('lastdoor: source "%s" was retired; a retired name '
                       'never comes back', p_to);
  END IF;
  -- Waits for first claims under way; later ones see the successor.
  UPDATE lastdoor.sources s SET successor = p_to
   WHERE s.source = p_from AND s.successor IS NULL;
  IF NOT FOUND AND NOT EXISTS (SELECT FROM lastdoor.sources s
                                WHERE s.source = p_from
                                  AND s.successor = p_to) THEN
    RAISE EXCEPTION USING
      ERRCODE = 'LD004',
      MESSAGE = format('lastdoor: source "%s" was handed over to another '
                       'one before', p_from);
  END IF;
  UPDATE lastdoor.marks m SET source = p_to WHERE m.source = p_from;
  GET DIAGNOSTICS moved = ROW_COUNT;
  RETURN moved;
END
$$;
REVOKE EXECUTE ON FUNCTION lastdoor.hand_over(text, text) FROM PUBLIC;

-- Guards. A guarded table lets a write through only behind evidence of a
-- token, given in this very transaction. Either
--
--   SELECT * FROM lastdoor.claim(...)  or  SELECT lastdoor.present(...)
--
-- or, where SQL can only be prefixed, by settings:
--
--   SET LOCAL lastdoor.resource = 'inventory/sku-1001';
--   SET LOCAL lastdoor.token = '42';
--
-- which count if the ledger's mark is that token, and are claimed in full if
-- lastdoor.owner and lastdoor.source are set as well.
--
-- What a claim leaves is `lastdoor.evidence`: the transaction's id, the token
-- and the resource, set for the transaction. Nothing that lasts longer than
-- a transaction is believed: settings are turned into evidence once, their
-- session-wide values are emptied in the same breath, and the mark's row is
-- locked until the end. So a plain SET that was left in a pooled session
-- opens the door for one transaction at most, and only while its token is
-- still the newest. This keeps out forgotten code, not a saboteur: whoever
-- owns the table can drop its guard.
CREATE FUNCTION lastdoor.take_settings(
  OUT token bigint, OUT reason text, OUT message text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  v_resource text := coalesce(current_setting('lastdoor.resource', true), '');
  v_token    text := coalesce(current_setting('lastdoor.token', true), '');
  v_owner    text := coalesce(current_setting('lastdoor.owner', true), '');
  v_source   text := coalesce(current_setting('lastdoor.source', true), '');
  v_mark     bigint;
  c          record;
BEGIN
  IF v_token = '' OR v_resource = '' THEN
    reason := 'LD002';
    message := 'no token was presented in this transaction';
    RETURN;
  END IF;
  IF v_token !~ '^[1-9][0-9]{0,15}$' THEN
    reason := 'LD002';
    message := format('"%s" is no token', v_token);
    RETURN;
  END IF;
  token := v_token::bigint;
  IF v_owner <> '' AND v_source <> '' THEN
    SELECT * INTO c
      FROM lastdoor.claim(v_resource, token, v_owner, v_source);
    IF c.verdict NOT IN ('held', 'raised') THEN
      reason := CASE WHEN c.verdict IN ('stale', 'other_owner') THEN 'LD001'
                     WHEN c.verdict = 'invalid' THEN 'LD002'
                     ELSE 'LD004' END;
      message := format('token %s for "%s" is refused: %s; the mark is %s '
                        'of source "%s"', token, v_resource, c.verdict,
                        c.mark, c.mark_source);
    END IF;
  ELSE
    PERFORM FROM lastdoor.marks m
      WHERE m.resource = v_resource AND m.token = take_settings.token
      FOR SHARE;
    IF NOT FOUND THEN
      SELECT m.token INTO v_mark FROM lastdoor.marks m
       WHERE m.resource = v_resource;
      reason := CASE WHEN v_mark > token THEN 'LD001' ELSE 'LD002' END;
      message := CASE WHEN v_mark > token
        THEN format('token %s for "%s" is stale: the mark is %s',
                    token, v_resource, v_mark)
        ELSE format('token %s for "%s" was never claimed: the mark is %s',
                    token, v_resource, coalesce(v_mark, 0)) END;
    END IF;
  END IF;
  IF reason IS NOT NULL THEN
    token := NULL;
    RETURN;
  END IF;
  PERFORM
    set_config('lastdoor.evidence', pg_current_xact_id()::text || ' '
                 || token || ' ' || v_resource, true),
    set_config('lastdoor.token', '', false),
    set_config('lastdoor.resource', '', false),
    set_config('lastdoor.owner', '', false),
    set_config('lastdoor.source', '', false);
END
$$;

-- Refuses, or in audit mode records, once per transaction and kind.
CREATE FUNCTION lastdoor.object(
  p_mode text, p_table text, p_operation text, p_reason text, p_message text)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  xid  text := pg_current_xact_id()::text;
  kind text := format('|%s %s %s|', p_operation, p_reason, p_table);
  told text := current_setting('lastdoor.audited', true);
BEGIN
  IF p_mode <> 'audit' THEN
    RAISE EXCEPTION USING
      ERRCODE = p_reason,
      MESSAGE = format('lastdoor: %s on %s is refused: %s',
                       p_operation, p_table, p_message),
      HINT = CASE p_reason
        WHEN 'LD001' THEN 'A newer holder was here: stop, do not retry.'
        WHEN 'LD002' THEN 'Write through lastdoor, or call lastdoor.present'
                          '(resource, token, owner, source) in the same '
                          'transaction first.'
        WHEN 'LD003' THEN 'DELETE looks at each row.'
        ELSE 'The token is of another lock service; see the hand-over.'
      END;
  END IF;
  IF told IS NULL OR split_part(told, '|', 1) <> xid THEN
    told := xid;
  ELSIF strpos(told, kind) > 0 THEN
    RETURN;
  END IF;
  PERFORM set_config('lastdoor.audited', told || kind, true);
  INSERT INTO lastdoor.audit
    (table_name, operation, reason, message, session_role, application,
     client, query)
  VALUES
    (p_table, p_operation, p_reason, p_message, session_user,
     current_setting('application_name'), inet_client_addr(),
     left(coalesce(current_query(), ''), 1000));
END
$$;

-- The guard of one row. Arguments: mode (strict, audit), fence column.
-- It sorts last among the BEFORE triggers by its name, so that no other one
-- changes what it stamped. In audit mode whatever it would refuse passes, but
-- the fence of a row stays where it is.
CREATE FUNCTION lastdoor.guard() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  evidence text := current_setting('lastdoor.evidence', true);
  plain    boolean := TG_ARGV[1] = 'fence_token';
  token    bigint;
  fence    bigint := 0;
  stamp    bigint;
  told     record;
BEGIN
  IF TG_OP = 'INSERT' THEN
    NULL;
  ELSIF plain THEN
    fence := OLD.fence_token;
  ELSE
    EXECUTE format('SELECT ($1).%I', TG_ARGV[1]) INTO fence USING OLD;
  END IF;

  IF split_part(evidence, ' ', 1) = pg_current_xact_id()::text THEN
    token := split_part(evidence, ' ', 2)::bigint;
  ELSE
    SELECT * INTO told FROM lastdoor.take_settings();
    token := told.token;
  END IF;

  IF token IS NULL THEN
    PERFORM lastdoor.object(TG_ARGV[0],
      format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME), TG_OP,
      told.reason, told.message);
    stamp := CASE TG_OP WHEN 'UPDATE' THEN fence END;
  ELSIF fence > token THEN
    PERFORM lastdoor.object(TG_ARGV[0],
      format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME), TG_OP, 'LD001',
      format('token %s is stale: the row''s fence is %s', token, fence));
    stamp := fence;
  ELSE
    -- A fence that is NULL, which only DDL by hand can bring about, is none.
    stamp := token;
  END IF;

  IF TG_OP = 'DELETE' THEN
    RETURN OLD;
  ELSIF stamp IS NULL THEN
    RETURN NEW;
  ELSIF plain THEN
    NEW.fence_token := stamp;
  ELSE
    NEW := jsonb_populate_record(NEW, jsonb_build_object(TG_ARGV[1], stamp));
  END IF;
  RETURN NEW;
END
$$;

-- TRUNCATE looks at no row, so no token is good enough for it.
CREATE FUNCTION lastdoor.guard_truncate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM lastdoor.object(TG_ARGV[0],
    format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME), TG_OP, 'LD003',
    'it would remove rows without a look at their fences; use DELETE');
  RETURN NULL;
END
$$;
