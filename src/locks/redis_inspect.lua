-- What is known of a lock: its value (false: free) and its time left in ms.
--
-- KEYS  1 lock
return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}
