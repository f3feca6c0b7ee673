DROP TABLE lastdoor_leases;
