-- Makes an empty ledger. 1: made; 0: it was there.
--
-- KEYS  1 ledger
return redis.call('HSETNX', KEYS[1], '\0format', '1')
