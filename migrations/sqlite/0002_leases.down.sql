DROP TABLE lastdoor_leases;
DROP TABLE lastdoor_counters;
