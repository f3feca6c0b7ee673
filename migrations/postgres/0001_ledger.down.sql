-- Guards first: a trigger whose function is gone would refuse every write.
-- Fence columns stay; they are part of the application's tables.
DO $$
DECLARE
  t record;
  patience CONSTANT text := pg_catalog.current_setting('lock_timeout');
BEGIN
  -- Tables in use: whoever reads them queues behind this.
  PERFORM pg_catalog.set_config('lock_timeout', '100ms', true);
  FOR t IN
    SELECT g.tgname, n.nspname, c.relname
      FROM pg_catalog.pg_trigger g
      JOIN pg_catalog.pg_class c ON c.oid = g.tgrelid
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE g.tgfoid IN ('lastdoor.guard'::pg_catalog.regproc,
                        'lastdoor.guard_truncate'::pg_catalog.regproc)
       AND g.tgparentid = 0 -- copies on partitions go with their origin
  LOOP
    EXECUTE pg_catalog.format('DROP TRIGGER %I ON %I.%I',
                              t.tgname, t.nspname, t.relname);
  END LOOP;
  PERFORM pg_catalog.set_config('lock_timeout', patience, true);
END
$$;

DROP TABLE lastdoor.audit;
DROP TABLE lastdoor.marks;
DROP TABLE lastdoor.sources;

DROP FUNCTION lastdoor.guard_truncate();
DROP FUNCTION lastdoor.guard();
DROP FUNCTION lastdoor.object(text, text, text, text, text);
DROP FUNCTION lastdoor.take_settings();
DROP FUNCTION lastdoor.hand_over(text, text);
DROP FUNCTION lastdoor.present(text, bigint, text, text);
DROP FUNCTION lastdoor.claim(text, bigint, text, text, bigint, integer);
DROP FUNCTION lastdoor.bound(integer);
DROP FUNCTION lastdoor.keep_sources();
DROP FUNCTION lastdoor.keep_marks();

DROP SCHEMA lastdoor;
