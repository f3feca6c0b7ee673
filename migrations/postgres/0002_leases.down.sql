DROP FUNCTION lastdoor.raise_token(bigint);
DROP FUNCTION lastdoor.this_system();
DROP FUNCTION lastdoor.lock_key(text);
DROP TABLE lastdoor.leases;
DROP FUNCTION lastdoor.keep_leases();
DROP TABLE lastdoor.token_source;
DROP SEQUENCE lastdoor.token;
